#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons::schedule_parts {

// The three functions of the handout, as its table has them: what they are asked for, and
// what they are held to.

struct Case {
    int stages = 1;
    int micro_batches = 1;
    int limit = 0;  ///< 0 where there is none

    std::string name() const {
        const std::string sizes = fmt::format("p = {}, m = {}", stages, micro_batches);
        return limit == 0 ? sizes : fmt::format("{}, limit {}", sizes, limit);
    }
};

/// A function of the handout, and what it is held to.
struct Part {
    std::string id;
    std::string task;
    std::vector<Case> (*cases)(const Judge& judge);
    /// What a stage holds of all that it may, and how much that is.
    const char* held;
    int (*most_held)(const Case& size, int stage);
    /// How many forwards and backwards long the least time under the limit is; with
    /// halves, the least bubble, in halves.
    int (*least)(const Case& size);
    bool halves = false;
};

inline int drawn(const Judge& judge, const std::string& name, int low, int high) {
    return static_cast<int>(judge.draw(name, low, high));
}

inline std::vector<Case> plain_cases(const Judge& judge) {
    return {{4, 8},   {3, 7},
            {1, 5},   {5, 3},
            {4, 1},   {drawn(judge, "a4.1: p", 6, 9), drawn(judge, "a4.1: m", 11, 19)},
            {32, 600}};
}

inline std::vector<Case> limited_cases(const Judge& judge) {
    const int p = drawn(judge, "a4.2: p", 6, 9);
    return {{4, 8, 2},
            {4, 9, 3},
            {3, 4, 1},
            {1, 5, 2},
            {5, 4, 2},
            {9, 7, 3},
            {4, 1, 1},
            {3, 8, 7},
            {p, drawn(judge, "a4.2: m", 17, 29), drawn(judge, "a4.2: limit", 3, p - 2)},
            {32, 600, 13}};
}

inline std::vector<Case> split_cases(const Judge& judge) {
    const int p = drawn(judge, "a4.3: p", 6, 9);
    return {{4, 8, 4},
            {4, 9, 5},
            {3, 7, 5},
            {2, 5, 9},
            {1, 4, 1},
            {5, 3, 6},
            {4, 5, 6},
            {p, drawn(judge, "a4.3: m", 19, 29),
             drawn(judge, "a4.3: limit", p + 1, 2 * p - 2)},
            {24, 500, 33}};
}

inline int limited_turns(const Case& size) {
    const int most = std::min(size.limit, size.stages);
    const int waits = (size.micro_batches + most - 1) / most - 1;
    return size.micro_batches + size.stages - 1 + waits * (size.stages - most);
}

inline const Part kPlain{
    "a4.1",
    "one_forward_one_backward",
    plain_cases,
    "in flight",
    [](const Case& size, int stage) {
        return std::min(size.stages - stage, size.micro_batches);
    },
    [](const Case& size) { return size.micro_batches + size.stages - 1; }};
inline const Part kLimited{"a4.2",
                           "with_memory_limit",
                           limited_cases,
                           "in flight",
                           [](const Case& size, int /*stage*/) { return size.limit; },
                           limited_turns};
inline const Part kSplit{"a4.3",
                         "split_backward",
                         split_cases,
                         "held until their W",
                         [](const Case& size, int /*stage*/) { return size.limit; },
                         [](const Case& size) {
                             const int filled = std::min(size.limit, size.micro_batches);
                             return std::max(0, 2 * size.stages - 1 - filled);
                         },
                         true};

}  // namespace lockstep::lessons::schedule_parts

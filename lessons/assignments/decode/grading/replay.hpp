#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lessons/assignments/decode/grading/given.hpp"
#include "src/core/host_tensor.hpp"

// Plays what a batcher has planned, pass by pass: each row stores its token in its place,
// and looks for those before it in theirs, as the keys and values of a real cache.

namespace lockstep::lessons::decode {

/// A pass has these rows of one request.
struct Planned {
    std::int64_t pass = 0;
    std::int64_t request = 0;
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::vector<std::int32_t> pages{};
};

struct Plan {
    std::vector<Planned> shares;
    std::int64_t free = 0;  ///< pages in the end, as the batcher says
};

/// Reads what the task has left. Nothing if it cannot be that.
std::optional<Plan> read_plan(const HostTensor& left);

/// Says what is wrong with a plan, each as a sentence; empty if nothing is.
struct Verdict {
    std::string tokens;       ///< a token that would not be the right one, or never comes
    bool unfinished = false;  ///< it never comes; all that were planned are right
    std::string limits;
    std::string order;
    std::int64_t passes = 0;  ///< up to the last that has rows
    int sent_back = 0;        ///< requests that had begun
};

/// Judges a plan up to the first pass in which a token would be wrong.
Verdict replayed(const Case& drawn, const std::vector<Planned>& plan);

}  // namespace lockstep::lessons::decode

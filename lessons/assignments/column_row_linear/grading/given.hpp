#pragma once

#include <fmt/format.h>

#include "lessons/assignments/column_row_linear/grading/one_device.hpp"
#include "lessons/grader/judge.hpp"

namespace lockstep::lessons::column_row {

// The grader's cases, and what ranks are given of them.

using one_device::columns;
using Given = std::map<std::string, TaskTensor>;

/// A layer from `in` to `out` columns; of an MLP the first, and the second leads back.
struct Sizes {
    int ranks = 1;
    std::int64_t rows = 0, in = 0, out = 0;

    std::string name() const {
        return fmt::format("{} rank{}, {} rows, {} to {} columns", ranks,
                           ranks == 1 ? "" : "s", rows, in, out);
    }
    Chunk in_of(int rank) const { return chunk(in, ranks, rank); }
    Chunk out_of(int rank) const { return chunk(out, ranks, rank); }
};

/// Columns that ranks divide and do not divide, one rank, fewer columns than ranks, and
/// what nobody has seen.
inline std::vector<Sizes> layers(const Judge& judge) {
    return {{2, 8, 6, 10},
            {3, 9, 7, 11},
            {1, 6, 5, 7},
            {5, 12, 4, 3},
            {static_cast<int>(judge.draw("ranks", 6, 8)), judge.draw("rows", 10, 14),
             judge.draw("in", 9, 23), judge.draw("out", 9, 29)}};
}

/// A product takes about as long as an all-reduce of its result.
inline constexpr Sizes kSlow{3, 128, 192, 800};
/// Weights are all that takes memory.
inline constexpr Sizes kLarge{4, 4, 150, 650};

inline one_device::Linear linear_of(const Judge& judge, const Sizes& sizes,
                                    const std::string& layer = "") {
    const auto [ranks, rows, in, out] = sizes;
    const auto drawn = [&](const char* what, const Shape& shape) {
        return judge.normal(fmt::format("{}{}, {}", layer, what, sizes.name()), shape);
    };
    return {drawn("x", {rows, in}), drawn("weight", {out, in}), drawn("bias", {out}),
            drawn("dy", {rows, out})};
}

inline one_device::Mlp mlp_of(const Judge& judge, const Sizes& sizes) {
    return {linear_of(judge, sizes, "first "),
            linear_of(judge, {sizes.ranks, sizes.rows, sizes.out, sizes.in}, "second ")};
}

inline TaskTensor parameter(HostTensor values) {
    return {std::move(values), MemoryCategory::parameters};
}

enum class Dx : std::uint8_t { wanted, unwanted };

/// A run, with what each rank was given and what it left.
struct Ran {
    std::string name;
    Sizes sizes;
    std::vector<RankTask> given;
    const TaskResult& left;
};

/// Every rank's part of what it is given is `given(rank)`.
inline Ran run(Judge& judge, const std::string& task, const Sizes& sizes, Dx dx,
               const std::function<Given(int)>& given) {
    TaskRun asked{sizes.name() + (dx == Dx::wanted ? "" : ", dx unwanted"), {}};
    for (int rank = 0; rank < sizes.ranks; ++rank)
        asked.ranks.push_back({task, given(rank), {{"wants_dx", dx == Dx::wanted}}});
    const TaskResult& left = judge.run(asked);
    return {std::move(asked.name), sizes, std::move(asked.ranks), left};
}

inline Ran run_column(Judge& judge, const std::string& task, const Sizes& sizes,
                      Dx dx = Dx::wanted) {
    const one_device::Linear whole = linear_of(judge, sizes);
    return run(judge, task, sizes, dx, [&](int rank) {
        const Chunk own = sizes.out_of(rank);
        return Given{{"x", {whole.x}},
                     {"weight", parameter(whole.weight.rows(own.begin, own.count))},
                     {"bias", parameter(whole.bias.rows(own.begin, own.count))},
                     {"dy", {columns(whole.dy, own)}}};
    });
}

inline Ran run_row(Judge& judge, const std::string& task, const Sizes& sizes) {
    const one_device::Linear whole = linear_of(judge, sizes);
    return run(judge, task, sizes, Dx::wanted, [&](int rank) {
        const Chunk own = sizes.in_of(rank);
        return Given{{"x", {columns(whole.x, own)}},
                     {"weight", parameter(columns(whole.weight, own))},
                     {"bias", parameter(whole.bias)},
                     {"dy", {whole.dy}}};
    });
}

inline Ran run_mlp(Judge& judge, const std::string& task, const Sizes& sizes,
                   Dx dx = Dx::wanted) {
    const auto first = linear_of(judge, sizes, "first ");
    const auto second =
        linear_of(judge, {sizes.ranks, sizes.rows, sizes.out, sizes.in}, "second ");
    return run(judge, task, sizes, dx, [&](int rank) {
        const Chunk own = sizes.out_of(rank);
        return Given{{"x", {first.x}},
                     {"weight1", parameter(first.weight.rows(own.begin, own.count))},
                     {"bias1", parameter(first.bias.rows(own.begin, own.count))},
                     {"weight2", parameter(columns(second.weight, own))},
                     {"bias2", parameter(second.bias)},
                     {"dy", {second.dy}}};
    });
}

}  // namespace lockstep::lessons::column_row

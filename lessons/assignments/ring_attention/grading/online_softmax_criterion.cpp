#include "lessons/assignments/ring_attention/grading/online_softmax_criterion.hpp"

#include <iterator>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/ring_attention/grading/expected.hpp"

namespace lockstep::lessons {

namespace {

constexpr double kUnseen = -std::numeric_limits<double>::infinity();
constexpr std::int64_t kWidth = 3;

/// What is added to a row's scores, in the first block, in the middle, in the last:
/// maxima that move little, rise, fall, a row that sees nothing, and rows that see
/// nothing at first, or in the end.
constexpr double kShifts[][3] = {{0, 1, 2},
                                 {-990, 0, 990},
                                 {990, 0, -990},
                                 {kUnseen, kUnseen, kUnseen},
                                 {kUnseen, -990, kUnseen},
                                 {-990, -990, -990}};
constexpr std::int64_t kRows = std::size(kShifts);

struct Blocks {
    std::vector<HostTensor> scores;  ///< (rows, keys)
    std::vector<HostTensor> values;  ///< (keys, width)
};

Blocks draw_blocks(const Judge& judge) {
    const std::int64_t count = judge.draw("blocks", 4, 6);
    Blocks blocks;
    for (std::int64_t b = 0; b < count; ++b) {
        const std::string name = fmt::format("block {}", b);
        // One of the blocks is empty.
        const std::int64_t keys = b == 2 ? 0 : judge.draw(name, 1, 5);
        HostTensor scores = judge.normal(name + ": scores", {kRows, keys});
        for (std::int64_t i = 0; i < scores.elements(); ++i)
            scores.set(i, scores.at(i) +
                              kShifts[i / keys][b == 0 ? 0 : (b + 1 < count ? 1 : 2)]);
        blocks.scores.push_back(scores);
        blocks.values.push_back(judge.normal(name + ": values", {keys, kWidth}));
    }
    return blocks;
}

/// Over the first `count` blocks.
HostTensor expected_mean(const Blocks& blocks, std::size_t count) {
    HostTensor mean({kRows, kWidth}, DType::f64);
    for (std::int64_t row = 0; row < kRows; ++row) {
        std::vector<double> weights, values;
        for (std::size_t b = 0; b < count; ++b) {
            const std::int64_t keys = blocks.values[b].shape()[0];
            for (std::int64_t key = 0; key < keys; ++key)
                weights.push_back(blocks.scores[b].at(row * keys + key));
            for (std::int64_t i = 0; i < keys * kWidth; ++i)
                values.push_back(blocks.values[b].at(i));
        }
        make_weights(weights);
        for (std::size_t i = 0; i < values.size(); ++i)
            add_to(mean, row * kWidth + static_cast<std::int64_t>(i) % kWidth,
                   weights[i / kWidth] * values[i]);
    }
    return mean;
}

/// "block 0, of whose keys rows 3 and 4 see none"
std::string text_of(const Blocks& blocks, std::size_t b) {
    const HostTensor& scores = blocks.scores[b];
    const std::int64_t keys = scores.shape()[1];
    if (keys == 0) return fmt::format("block {}, which is empty", b);
    std::vector<std::int64_t> blind;
    for (std::int64_t row = 0; row < kRows; ++row)
        if (scores.at(row * keys) == kUnseen) blind.push_back(row);
    return fmt::format("block {}, of whose keys row{} {} see{} none", b,
                       blind.size() == 1 ? "" : "s", fmt::join(blind, " and "),
                       blind.size() == 1 ? "s" : "");
}

RankTask task_of(const std::string& name, const Blocks& blocks) {
    RankTask task{name, {}, {}, /*may_download=*/true};
    const auto count = static_cast<std::int64_t>(blocks.scores.size());
    task.numbers = {{"rows", kRows}, {"width", kWidth}, {"blocks", count}};
    for (std::size_t b = 0; b < blocks.scores.size(); ++b) {
        task.tensors[fmt::format("scores_{}", b)] = {blocks.scores[b]};
        task.tensors[fmt::format("values_{}", b)] = {blocks.values[b]};
    }
    return task;
}

const HostTensor& value_of(Judge& judge, const TaskResult& result,
                           const std::string& name) {
    const auto& values = result.ranks.front().values;
    judge.ask(values.contains(name), fmt::format("a value '{}'", name), "none");
    return values.at(name);
}

/// `held` is how many numbers a state has after it has absorbed all blocks.
void judge_size(Judge& judge, const HostTensor& held) {
    constexpr std::int64_t kNumbers = kRows * (2 + kWidth);
    judge.ask(held.elements() == 1 && held.at(0) == kNumbers,
              fmt::format("a state of {} numbers, as large as it was made, whatever it "
                          "has absorbed",
                          kNumbers),
              held.elements() == 1 ? fmt::format("{:g} numbers", held.at(0)) : "none");
}

}  // namespace

void judge_online_softmax(Judge& judge) {
    const Blocks blocks = draw_blocks(judge);
    const std::size_t count = blocks.scores.size();
    const std::string finish = fmt::format("finish, ({}, {})", kRows, kWidth);
    const TaskResult& absorbed =
        judge.run({fmt::format("{} blocks", count), {task_of("absorb", blocks)}});
    for (std::size_t b = 0; b < count; ++b)
        judge.close(finish + ", after " + text_of(blocks, b),
                    value_of(judge, absorbed, fmt::format("after_{}", b)),
                    expected_mean(blocks, b + 1));
    judge_size(judge, value_of(judge, absorbed, "held"));
    for (std::size_t split = 0; split <= count; ++split) {
        RankTask task = task_of("merge", blocks);
        task.numbers["split"] = static_cast<std::int64_t>(split);
        const std::string name =
            fmt::format("{} blocks merged with {}", split, count - split);
        const TaskResult& merged = judge.run({name, {task}});
        judge.close(name + ": " + finish, value_of(judge, merged, "merged"),
                    expected_mean(blocks, count));
        judge.close(name + ", and all absorbed once more: " + finish,
                    value_of(judge, merged, "twice"), expected_mean(blocks, count));
    }
}

}  // namespace lockstep::lessons

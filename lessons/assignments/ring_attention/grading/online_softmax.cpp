#include "lessons/assignments/ring_attention/grading/online_softmax.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "lessons/assignments/ring_attention/grading/whole_attention.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons::ring_attention {

namespace {

constexpr std::int64_t kWidth = 3;

/// These are added to a row's scores, in the first block, in the middle ones and in the
/// last one. The maxima move little, rise, or fall; one row sees nothing; others see
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
        const int place = b == 0 ? 0 : (b + 1 < count ? 1 : 2);
        for (std::int64_t row = 0; row < kRows; ++row)
            for (std::int64_t i = row * keys; i < (row + 1) * keys; ++i)
                scores.set(i, scores.at(i) + kShifts[row][place]);
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
        for (std::size_t i = 0; i < values.size(); ++i) {
            const std::int64_t at = row * kWidth + static_cast<std::int64_t>(i) % kWidth;
            mean.set(at, mean.at(at) + weights[i / kWidth] * values[i]);
        }
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

/// A state, which the grader keeps between the calls that change it: each of them is made
/// in a process of its own, so that nothing but the state is remembered.
struct State {
    std::string story;  ///< "block 0, 1, 2": what it has absorbed, for sentences
    HostTensor maximum, sum, output;
};

State empty_state() {
    State state{"nothing", HostTensor({kRows}, DType::f64),
                HostTensor({kRows}, DType::f64),
                HostTensor({kRows * kWidth}, DType::f64)};
    for (std::int64_t row = 0; row < kRows; ++row)
        state.maximum.set(row, kUnseen);
    return state;
}

RankTask task_of(const std::string& name) {
    return {name, {}, {{"rows", kRows}, {"width", kWidth}}, /*may_download=*/true};
}

void give(RankTask& task, const std::string& name, const State& state) {
    task.tensors[name + " maximum"] = {state.maximum};
    task.tensors[name + " sum"] = {state.sum};
    task.tensors[name + " output"] = {state.output};
}

const HostTensor& value_of(Judge& judge, const TaskResult& result,
                           const std::string& name) {
    const auto& values = result.ranks.front().values;
    judge.ask(values.contains(name), fmt::format("a value '{}'", name), "none");
    return values.at(name);
}

/// Returns the state that a call has left, once it is as large as a state is.
State left_state(Judge& judge, const TaskResult& result, const std::string& story) {
    const State made = empty_state();
    const auto part = [&](const std::string& name, const HostTensor& like) {
        const HostTensor& left = value_of(judge, result, name);
        Judge::form(fmt::format("a state stays as large as it was made; {} after {}",
                                name, story),
                    left, like.shape());
        return left;
    };
    return {story, part("maximum", made.maximum), part("sum", made.sum),
            part("output", made.output)};
}

State absorbed(Judge& judge, const State& state, const Blocks& blocks, std::size_t b) {
    RankTask task = task_of("absorb");
    give(task, "state", state);
    task.tensors["scores"] = {blocks.scores[b]};
    task.tensors["values"] = {blocks.values[b]};
    const std::string story = state.story == "nothing"
                                  ? fmt::format("block {}", b)
                                  : fmt::format("{}, {}", state.story, b);
    return left_state(judge, judge.run({story, {task}}), story);
}

/// A state that has absorbed the blocks in [begin, end).
State absorbed(Judge& judge, const Blocks& blocks, std::size_t begin, std::size_t end) {
    State state = empty_state();
    for (std::size_t b = begin; b < end; ++b)
        state = absorbed(judge, state, blocks, b);
    return state;
}

State merged(Judge& judge, const State& state, const State& other) {
    RankTask task = task_of("merge");
    give(task, "state", state);
    give(task, "other", other);
    const std::string story = fmt::format("{}, merged with {}", state.story, other.story);
    return left_state(judge, judge.run({story, {task}}), story);
}

bool is_near(double a, double b) {
    return std::abs(a - b) <= 1e-10 * std::max(std::abs(b), 1.0);
}

/// Returns the state that has seen a block alone, but for the output.
State state_of(const HostTensor& scores) {
    State state = empty_state();
    const std::int64_t keys = scores.shape()[1];
    for (std::int64_t row = 0; row < kRows; ++row) {
        double most = kUnseen, sum = 0;
        for (std::int64_t i = row * keys; i < (row + 1) * keys; ++i)
            most = std::max(most, scores.at(i));
        for (std::int64_t i = row * keys; i < (row + 1) * keys && most != kUnseen; ++i)
            sum += std::exp(scores.at(i) - most);
        state.maximum.set(row, most);
        state.sum.set(row, sum);
    }
    return state;
}

/// Says what is wrong with a state that was put together of two, as far as its maxima and
/// sums tell.
std::string cause_of(const State& both, const State& first, const State& second) {
    for (std::int64_t row = 0; row < kRows; ++row) {
        const double a = first.maximum.at(row), b = second.maximum.at(row);
        const double most = std::max(a, b);
        const double maximum = both.maximum.at(row), sum = both.sum.at(row);
        if (most == kUnseen) {
            if (!std::isnan(maximum) && !std::isnan(sum)) continue;
            return fmt::format(
                "row {} has seen nothing yet: -infinity less -infinity is NaN", row);
        }
        if (!is_near(maximum, most))
            return fmt::format("row {}: the maximum is {:.6g}, and should be {:.6g}", row,
                               maximum, most);
        const double of_first = first.sum.at(row) * std::exp(a - most);
        const double of_second = second.sum.at(row) * std::exp(b - most);
        if (is_near(sum, of_first + of_second)) continue;
        for (const double as_it_is :
             {first.sum.at(row) + of_second, first.sum.at(row) + second.sum.at(row)})
            if (is_near(sum, as_it_is))
                return fmt::format(
                    "row {}: the maximum was {:.6g}, what comes has {:.6g}, and what was "
                    "summed before counts as if they were the same: each sum counts "
                    "times exp(its maximum - the larger one)",
                    row, a, b);
    }
    return "";
}

/// Asks for the mean; else `cause` says what is wrong with the state.
void ask_mean(Judge& judge, const State& state, const std::string& what,
              const HostTensor& expected, const std::string& cause) {
    RankTask task = task_of("finish");
    give(task, "state", state);
    const TaskResult& result = judge.run({what, {task}});
    try {
        judge.close(fmt::format("finish, {}, after {}", expected.shape().text(), what),
                    value_of(judge, result, "mean"), expected);
    } catch (Judge::No& no) {
        no.said = cause;
        throw;
    }
}

}  // namespace

void judge_online_softmax(Judge& judge) {
    const Blocks blocks = draw_blocks(judge);
    const std::size_t count = blocks.scores.size();
    State state = empty_state();
    for (std::size_t b = 0; b < count; ++b) {
        const State before = state;
        state = absorbed(judge, state, blocks, b);
        ask_mean(judge, state, text_of(blocks, b), expected_mean(blocks, b + 1),
                 cause_of(state, before, state_of(blocks.scores[b])));
    }
    const HostTensor all = expected_mean(blocks, count);
    for (std::size_t split = 0; split <= count; ++split) {
        const std::string name =
            fmt::format("{} blocks merged with {}", split, count - split);
        const State first = absorbed(judge, blocks, 0, split);
        const State rest = absorbed(judge, blocks, split, count);
        State both = merged(judge, first, rest);
        ask_mean(judge, both, name, all, cause_of(both, first, rest));
        if (split != count / 2) continue;
        for (std::size_t b = 0; b < count; ++b)
            both = absorbed(judge, both, blocks, b);
        ask_mean(judge, both, name + ", and all absorbed once more", all, "");
    }
}

}  // namespace lockstep::lessons::ring_attention

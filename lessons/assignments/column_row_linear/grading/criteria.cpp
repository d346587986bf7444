#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "src/comm/chunks.hpp"

namespace lockstep::lessons {

namespace {

// The grader's cases, and the tensors that ranks are given.

/// A layer from `in` to `out` columns. In an MLP this is the first layer.
struct Sizes {
    int ranks = 1;
    std::int64_t rows = 0, in = 0, out = 0;

    std::string name() const {
        return fmt::format("{} rank{}, {} rows, {} to {} columns", ranks,
                           ranks == 1 ? "" : "s", rows, in, out);
    }
};

/// Returns sizes that are drawn again for each grading: the number of ranks divides the
/// columns or not; one rank; fewer columns than ranks; and more ranks.
std::vector<Sizes> layers(const Judge& judge) {
    const auto draw = [&](const char* name, std::int64_t low, std::int64_t high) {
        return judge.draw(name, low, high);
    };
    return {{2, draw("rows of 2", 7, 11), 2 * draw("in of 2", 2, 4),
             2 * draw("out of 2", 5, 7)},
            {3, draw("rows of 3", 8, 12), 3 * draw("in of 3", 2, 4) + 1,
             3 * draw("out of 3", 2, 4) + 2},
            {1, draw("rows of 1", 4, 9), draw("in of 1", 4, 6), draw("out of 1", 7, 9)},
            {5, draw("rows of 5", 11, 15), draw("in of 5", 3, 4), 3},
            {static_cast<int>(draw("ranks", 6, 8)), draw("rows", 10, 14),
             draw("in", 9, 23), draw("out", 9, 29)}};
}

/// Returns sizes for which a product takes about as long as an all-reduce of its result.
Sizes slow(const Judge& judge) {
    return {3, 8 * judge.draw("rows, slow", 15, 17), 48 * judge.draw("in, slow", 3, 4),
            48 * judge.draw("out, slow", 16, 17)};
}

/// Returns sizes for which weights take almost all of the memory.
Sizes large(const Judge& judge) {
    return {4, 4, judge.draw("in, large", 140, 180), judge.draw("out, large", 600, 700)};
}

/// A whole layer's x, parameters and gradient of y.
struct Layer {
    HostTensor x, weight, bias, dy;
};

Layer layer_of(const Judge& judge, const Sizes& sizes, const std::string& layer = "") {
    const auto [ranks, rows, in, out] = sizes;
    const auto drawn = [&](const char* what, const Shape& shape) {
        return judge.normal(fmt::format("{}{}, {}", layer, what, sizes.name()), shape);
    };
    return {drawn("x", {rows, in}), drawn("weight", {out, in}), drawn("bias", {out}),
            drawn("dy", {rows, out})};
}

TaskTensor parameter(HostTensor values) {
    return {std::move(values), MemoryCategory::parameters};
}

HostTensor rows(const HostTensor& a, const Chunk& own) {
    return a.rows(own.begin, own.count);
}

HostTensor columns(const HostTensor& a, const Chunk& own) {
    HostTensor part({a.shape()[0], own.count}, DType::f64);
    for (std::int64_t i = 0; i < part.elements(); ++i)
        part.set(i, a.at(i / own.count * a.shape()[1] + own.begin + i % own.count));
    return part;
}

enum class Dx : std::uint8_t { wanted, unwanted };
using Given = std::map<std::string, TaskTensor>;

/// Returns a run in which each rank gets `given(its chunk of count)` as inputs.
TaskRun run_of(const std::string& task, const Sizes& sizes, Dx dx, std::int64_t count,
               const std::function<Given(const Chunk&)>& given) {
    TaskRun run{fmt::format("{}, {}{}", task, sizes.name(),
                            dx == Dx::wanted ? "" : ", dx unwanted"),
                {}};
    for (int rank = 0; rank < sizes.ranks; ++rank)
        run.ranks.push_back({task,
                             given(chunk(count, sizes.ranks, rank)),
                             {{"wants_dx", dx == Dx::wanted}}});
    return run;
}

TaskRun column(const Judge& judge, const std::string& task, const Sizes& sizes, Dx dx) {
    const Layer whole = layer_of(judge, sizes);
    return run_of(task, sizes, dx, sizes.out, [&](const Chunk& own) {
        return Given{{"x", {whole.x}},
                     {"weight", parameter(rows(whole.weight, own))},
                     {"bias", parameter(rows(whole.bias, own))},
                     {"dy", {columns(whole.dy, own)}}};
    });
}

TaskRun row(const Judge& judge, const std::string& task, const Sizes& sizes, Dx dx) {
    const Layer whole = layer_of(judge, sizes);
    return run_of(task, sizes, dx, sizes.in, [&](const Chunk& own) {
        return Given{{"x", {columns(whole.x, own)}},
                     {"weight", parameter(columns(whole.weight, own))},
                     {"bias", parameter(whole.bias)},
                     {"dy", {whole.dy}}};
    });
}

TaskRun mlp(const Judge& judge, const std::string& task, const Sizes& sizes, Dx dx) {
    const auto [ranks, n, in, out] = sizes;
    const Layer first = layer_of(judge, sizes, "first ");
    const Layer second = layer_of(judge, {ranks, n, out, in}, "second ");
    return run_of(task, sizes, dx, out, [&](const Chunk& own) {
        return Given{{"x", {first.x}},
                     {"weight1", parameter(rows(first.weight, own))},
                     {"bias1", parameter(rows(first.bias, own))},
                     {"weight2", parameter(columns(second.weight, own))},
                     {"bias2", parameter(second.bias)},
                     {"dy", {second.dy}}};
    });
}

using Build = TaskRun (*)(const Judge&, const std::string& task, const Sizes&, Dx);

/// Returns runs of a layer's forward and backward. Backward also runs with dx unwanted,
/// except for a layer by rows, which makes dx without messages.
std::vector<TaskRun> runs(const Judge& judge, const std::string& layer) {
    const Build build = layer == "column" ? column : layer == "row" ? row : mlp;
    std::vector<TaskRun> all;
    for (const Sizes& sizes : layers(judge)) {
        all.push_back(build(judge, layer + "_forward", sizes, Dx::wanted));
        all.push_back(build(judge, layer + "_backward", sizes, Dx::wanted));
        if (layer != "row")
            all.push_back(build(judge, layer + "_backward", sizes, Dx::unwanted));
    }
    return all;
}

// Questions about a run.

/// Judges the tensors that a task computed, in the order of the computation.
void judge_results(Judge& judge, const TaskRun& run) {
    const auto& expected = judge.right(run).ranks.front().tensors;
    AskedValues asked;
    asked.cause = suspected_sums(judge, run);
    for (const char* tensor : {"y", "dx", "d_weight", "d_bias", "d_weight1", "d_bias1",
                               "d_weight2", "d_bias2"}) {
        asked.tensors = {tensor};
        if (expected.contains(tensor)) judge.as_right(run, asked);
    }
}

void judge_values(Judge& judge, const TaskRun& run) {
    judge_results(judge, run);
    judge.given_as_before(run);
}

/// Judges what each rank sends. Chunks differ by one element, and a ring may begin with
/// any chunk. Fewer messages are allowed: an all-reduce that is no ring may need fewer.
void judge_bytes(Judge& judge, const TaskRun& run) {
    judge.needs_values(run, judge_results);
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
        if (run.ranks[rank].numbers.at("wants_dx") == 0)
            judge.ask(!judge.run(run).ranks[rank].tensors.contains("dx"),
                      fmt::format("{}: rank {}: no dx", run.name, rank), "a tensor");
    judge.figures_as_right(run, judge.exercise(),
                           {{kSent, {5, 5}}, {kMessages, {100, 0}}});
}

void judge_time(Judge& judge, const TaskRun& run, int percent_more) {
    judge.needs_values(run, judge_results);
    judge.time_as_right(
        run, judge.exercise(), {100, percent_more},
        "compute no product twice, and overlap the all-reduce of dx with the gradients "
        "of the weight and the bias: launch it before them, and wait for it after them");
}

void judge_column_time(Judge& judge) {
    for (const Dx dx : {Dx::wanted, Dx::unwanted})
        judge_time(judge, column(judge, "column_backward", slow(judge), dx), 25);
}

/// A pass takes 13 % more time with one more product, or if it waits for dx too early.
void judge_mlp_time(Judge& judge) {
    judge_time(judge, mlp(judge, "mlp_backward", slow(judge), Dx::wanted), 10);
}

/// A rank's weights and their gradients are 95 % of the bytes that it needs.
void judge_mlp_memory(Judge& judge) {
    const TaskRun run = mlp(judge, "mlp_backward", large(judge), Dx::wanted);
    judge.needs_values(run, judge_results);
    judge.figures_as_right(run, "a3.3", {{kPeak, {100, 28}}});
}

}  // namespace

Assignment column_row_linear_assignment() {
    return {
        "column-row-linear",
        "A linear layer by columns and by rows",
        "Forward and backward of a linear layer that is sharded over any number of "
        "ranks, by columns and by rows, and of an MLP with one all-reduce in each "
        "direction.",
        {"layers.hpp", "layers.cpp", "adapters.cpp"},
        taught_by(
            "column-linear",
            {{"a3.1-values", "by columns: each rank's y and gradients, and dx on all", 20,
              "split_columns", each_run({runs}, "column", judge_values)},
             {"a3.1-bytes", "by columns: one all-reduce backward, none forward", 5,
              "split_columns", each_run({runs}, "column", judge_bytes)},
             {"a3.1-time",
              "by columns: dx is on its way while the weight's gradient is made", 10,
              "split_columns", judge_column_time},
             {"a3.2-values", "by rows: y on all ranks, and each rank's gradients", 25,
              "split_rows", each_run({runs}, "row", judge_values)},
             {"a3.2-bytes", "by rows: one all-reduce forward, none backward", 10,
              "split_rows", each_run({runs}, "row", judge_bytes)},
             {"a3.3-values", "the MLP's y, dx and gradients are one device's", 10, "pair",
              each_run({runs}, "mlp", judge_values)},
             {"a3.3-bytes",
              "the MLP makes one all-reduce each way, and sends nothing else", 5, "pair",
              each_run({runs}, "mlp", judge_bytes)},
             {"a3.3-time", "no rank of the MLP takes longer than its share of the work",
              5, "count_costs", judge_mlp_time},
             {"a3.3-memory", "no rank of the MLP has room for a whole weight", 10,
              "count_costs", judge_mlp_memory}}),
        column_row_linear_solutions};
}

}  // namespace lockstep::lessons

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
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

namespace {

// The grader's cases, and what ranks are given of them.

/// A layer from `in` to `out` columns; of an MLP the first, and the second leads back.
struct Sizes {
    int ranks = 1;
    std::int64_t rows = 0, in = 0, out = 0;

    std::string name() const {
        return fmt::format("{} rank{}, {} rows, {} to {} columns", ranks,
                           ranks == 1 ? "" : "s", rows, in, out);
    }
};

/// Columns that ranks divide and do not divide, one rank, fewer columns than ranks, and
/// more ranks; drawn anew for each grading.
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

/// A product takes about as long as an all-reduce of its result.
Sizes slow(const Judge& judge) {
    return {3, 8 * judge.draw("rows, slow", 15, 17), 48 * judge.draw("in, slow", 3, 4),
            48 * judge.draw("out, slow", 16, 17)};
}

/// Weights are all that takes memory.
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

/// Returns a run of a task that gives each rank what `given` has of its share of `count`.
TaskRun run_of(const std::string& task, const Sizes& sizes, Dx dx, std::int64_t count,
               const std::function<Given(const Chunk&)>& given) {
    TaskRun run{sizes.name() + (dx == Dx::wanted ? "" : ", dx unwanted"), {}};
    for (int rank = 0; rank < sizes.ranks; ++rank)
        run.ranks.push_back({task,
                             given(chunk(count, sizes.ranks, rank)),
                             {{"wants_dx", dx == Dx::wanted}}});
    return run;
}

TaskRun column(const Judge& judge, const std::string& task, const Sizes& sizes,
               Dx dx = Dx::wanted) {
    const Layer whole = layer_of(judge, sizes);
    return run_of(task, sizes, dx, sizes.out, [&](const Chunk& own) {
        return Given{{"x", {whole.x}},
                     {"weight", parameter(rows(whole.weight, own))},
                     {"bias", parameter(rows(whole.bias, own))},
                     {"dy", {columns(whole.dy, own)}}};
    });
}

TaskRun row(const Judge& judge, const std::string& task, const Sizes& sizes) {
    const Layer whole = layer_of(judge, sizes);
    return run_of(task, sizes, Dx::wanted, sizes.in, [&](const Chunk& own) {
        return Given{{"x", {columns(whole.x, own)}},
                     {"weight", parameter(columns(whole.weight, own))},
                     {"bias", parameter(whole.bias)},
                     {"dy", {whole.dy}}};
    });
}

TaskRun mlp(const Judge& judge, const std::string& task, const Sizes& sizes,
            Dx dx = Dx::wanted) {
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

// The runs of an exercise.

using Runs = std::vector<TaskRun> (*)(const Judge&, const Sizes&);

std::vector<TaskRun> column_runs(const Judge& judge, const Sizes& sizes) {
    return {column(judge, "column_forward", sizes),
            column(judge, "column_backward", sizes),
            column(judge, "column_backward", sizes, Dx::unwanted)};
}

std::vector<TaskRun> row_runs(const Judge& judge, const Sizes& sizes) {
    return {row(judge, "row_forward", sizes), row(judge, "row_backward", sizes)};
}

std::vector<TaskRun> mlp_runs(const Judge& judge, const Sizes& sizes) {
    return {mlp(judge, "mlp_forward", sizes), mlp(judge, "mlp", sizes),
            mlp(judge, "mlp", sizes, Dx::unwanted)};
}

// What is asked of a run.

/// Judges what a task computed, in the order in which it does.
void judge_results(Judge& judge, const TaskRun& run) {
    const auto& expected = judge.right(run).ranks.front().tensors;
    AskedValues asked;
    asked.cause = [&](const std::string& tensor, const OfRanks& left) {
        return suspected_sum(left, expected.at(tensor));
    };
    for (const char* tensor : {"y", "dx", "d_weight", "d_bias", "d_weight1", "d_bias1",
                               "d_weight2", "d_bias2"}) {
        asked.tensors = {tensor};
        if (expected.contains(tensor)) judge.as_right(run, asked);
    }
}

/// Asks that all that ranks were given is as it was.
void judge_given(Judge& judge, const TaskRun& run) {
    const RankTask& task = run.ranks.front();
    AskedValues asked;
    for (const auto& [name, tensor] : task.tensors)
        asked.tensors.push_back("given " + name);
    asked.called = [&](const std::string& tensor) {
        return fmt::format("{} after {}", tensor, task.task);
    };
    asked.bound = 0;
    judge.as_right(run, asked);
}

void judge_values(Judge& judge, Runs runs) {
    for (const Sizes& sizes : layers(judge))
        for (const TaskRun& run : runs(judge, sizes)) {
            judge_results(judge, run);
            judge_given(judge, run);
        }
}

/// Bytes, time and memory count of runs whose values are right: doing nothing is fast.
void needs_values(const Judge& judge, const std::string& exercise, const TaskRun& run) {
    judge.needs(exercise + "-values", [&](Judge& asking) { judge_results(asking, run); });
}

/// Judges what each rank sends. Chunks differ by an element, and which a ring hands on is
/// up to it; other all-reduces need fewer messages.
void judge_sent(Judge& judge, const std::string& exercise, const TaskRun& run) {
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank) {
        const RankTask& task = run.ranks[rank];
        const std::string name =
            fmt::format("{}: {}, {}: rank {}: ", exercise, task.task, run.name, rank);
        if (task.numbers.at("wants_dx") == 0)
            judge.ask(!judge.run(run).ranks[rank].tensors.contains("dx"), name + "no dx",
                      "a tensor");
        const auto sent = [=](const RunReport& report) {
            return report.ranks[rank].bytes_sent();
        };
        const auto messages = [=](const RunReport& report) {
            return report.ranks[rank].messages_sent();
        };
        judge.figure_as_right(run, name + "sent", "bytes", sent, {5, 5});
        judge.figure_as_right(run, name + "messages", "messages", messages, {100, 0});
    }
}

void judge_bytes(Judge& judge, const std::string& exercise, Runs runs) {
    for (const Sizes& sizes : layers(judge))
        for (const TaskRun& run : runs(judge, sizes)) {
            needs_values(judge, exercise, run);
            judge_sent(judge, exercise, run);
        }
}

void judge_time(Judge& judge, const std::string& exercise, const TaskRun& run,
                int percent_more) {
    needs_values(judge, exercise, run);
    judge.time_as_right(
        run, exercise, {100, percent_more},
        "no product is made twice, and the all-reduce of dx runs while the "
        "weight's and the bias's gradients are made: it is launched before, and "
        "waited for behind");
}

void judge_column_time(Judge& judge) {
    for (const Dx dx : {Dx::wanted, Dx::unwanted})
        judge_time(judge, "a3.1", column(judge, "column_backward", slow(judge), dx), 25);
}

/// A product more, or a dx that is waited for at once, takes 13 % more.
void judge_mlp_time(Judge& judge) {
    judge_time(judge, "a3.3", mlp(judge, "mlp", slow(judge)), 10);
}

/// A rank's weights and their gradients are nineteen of twenty bytes that it needs.
void judge_mlp_memory(Judge& judge) {
    const TaskRun run = mlp(judge, "mlp", large(judge));
    needs_values(judge, "a3.3", run);
    judge.figures_as_right(run, "a3.3", {{kPeak, {100, 28}}});
}

Criterion values(const std::string& id, const std::string& title, int points,
                 const char* step, Runs runs) {
    return {id, title, points, lesson_step("column-linear", step),
            [runs](Judge& judge) { judge_values(judge, runs); }};
}

Criterion bytes(const std::string& exercise, const std::string& title, int points,
                const char* step, Runs runs) {
    return {exercise + "-bytes", title, points, lesson_step("column-linear", step),
            [=](Judge& judge) { judge_bytes(judge, exercise, runs); }};
}

}  // namespace

Assignment column_row_linear_assignment() {
    return {
        "column-row-linear",
        "A linear layer by columns and by rows",
        "Forward and backward of a layer shared out to any number of ranks, by columns "
        "and by rows, and of an MLP with one all-reduce each way.",
        {"layers.hpp", "layers.cpp", "adapters.cpp"},
        {values("a3.1-values", "by columns: each rank's y and gradients, and dx on all",
                20, "split_columns", column_runs),
         bytes("a3.1", "by columns: one all-reduce backward, none forward", 5,
               "split_columns", column_runs),
         {"a3.1-time", "by columns: dx is on its way while the weight's gradient is made",
          10, lesson_step("column-linear", "split_columns"), judge_column_time},
         values("a3.2-values", "by rows: y on all ranks, and each rank's gradients", 25,
                "split_rows", row_runs),
         bytes("a3.2", "by rows: one all-reduce forward, none backward", 10, "split_rows",
               row_runs),
         values("a3.3-values", "the MLP's y, dx and gradients are one device's", 10,
                "pair", mlp_runs),
         bytes("a3.3", "the MLP makes one all-reduce each way, and sends nothing else", 5,
               "pair", mlp_runs),
         {"a3.3-time", "the MLP takes no rank longer than its share of the work", 5,
          lesson_step("column-linear", "count_costs"), judge_mlp_time},
         {"a3.3-memory", "no rank of the MLP has room for a whole weight", 10,
          lesson_step("column-linear", "count_costs"), judge_mlp_memory}},
        column_row_linear_solutions};
}

}  // namespace lockstep::lessons

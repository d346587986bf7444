#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/micro_batches.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "src/device/operations/activation.hpp"

namespace lockstep::lessons {

namespace {

// The grader's cases, drawn again for each grading.

/// A rank's rows: a number of full micro-batches, and the rows of a smaller last one.
struct Share {
    std::int64_t whole = 0;
    std::int64_t rest = 0;
};

/// Returns a case with a network (linear, tanh, linear) and no rows yet.
MicroBatchCase network(const Judge& judge, const std::string& label) {
    const auto draw = [&](const char* what, std::int64_t low, std::int64_t high) {
        return judge.draw(label + ", " + what, low, high);
    };
    return {label,
            {},
            2,
            draw("hidden", 7, 11),
            draw("features", 5, 8),
            draw("classes", 3, 5)};
}

/// Returns a run of a task. Each rank gets the network, and its share of the batch.
TaskRun deal(const Judge& judge, const std::string& task, MicroBatchCase network,
             std::int64_t most_rows, const std::vector<Share>& shares) {
    network.label += fmt::format(", at most {} rows at once", most_rows);
    for (const Share& share : shares) {
        auto& rows = network.rows.emplace_back(share.whole, most_rows);
        if (share.rest > 0) rows.push_back(share.rest);
    }
    return run_on_network(judge, network,
                          {task,
                           {},
                           {{"most rows", most_rows},
                            {"gradients before", 0},
                            {"steps", 3},
                            {"learning rate in thousandths", 250}}});
}

TaskRun deal(const Judge& judge, const std::string& task, const std::string& label,
             const std::vector<Share>& shares) {
    return deal(judge, task, network(judge, label),
                judge.draw(label + ", rows at once", 4, 5), shares);
}

/// Returns runs whose shards are full micro-batches, or one smaller micro-batch. Shards
/// differ in size, so a mean of the shards' means is wrong. The cases are one rank, ranks
/// without rows, fewer rows than a micro-batch may have, and more ranks.
std::vector<TaskRun> whole_runs(const Judge& judge, const std::string& task) {
    std::vector<Share> idle{{1}, {2}, {3}};
    idle[static_cast<std::size_t>(judge.draw("idle rank", 0, 2))] = {};
    std::vector<Share> many(static_cast<std::size_t>(judge.draw("more ranks", 5, 7)));
    for (std::size_t rank = 0; rank < many.size(); ++rank)
        many[rank] = {judge.draw(fmt::format("micro-batches of rank {}", rank), 0, 2)};
    many.front() = {0, 1};
    many.back() = {3};
    return {
        deal(judge, task, "one rank", {{judge.draw("micro-batches of one rank", 2, 3)}}),
        deal(judge, task, "a rank without rows", idle),
        deal(judge, task, "a small shard",
             {{judge.draw("micro-batches of two", 2, 3)}, {0, 1}}),
        deal(judge, task, "less than a micro-batch",
             {{}, {0, judge.draw("less", 1, 2)}, {}, {0, 3}}),
        deal(judge, task, "more ranks", many)};
}

/// Returns runs in which a shard's last micro-batch has fewer rows than the others.
std::vector<TaskRun> odd_runs(const Judge& judge, const std::string& task) {
    const auto odd = [&](const std::string& label, std::int64_t ranks) {
        std::vector<Share> shares(static_cast<std::size_t>(ranks));
        for (std::size_t rank = 0; rank < shares.size(); ++rank) {
            const std::string of_rank = fmt::format("{}, rank {}, ", label, rank);
            shares[rank] = {judge.draw(of_rank + "micro-batches", 1, 2),
                            judge.draw(of_rank + "rest", 1, 2)};
        }
        return shares;
    };
    std::vector<Share> idle = odd("odd, with an idle rank", 3);
    idle[static_cast<std::size_t>(judge.draw("odd idle rank", 0, 2))] = {};
    return {deal(judge, task, "odd, one rank", odd("odd, one rank", 1)),
            deal(judge, task, "odd, with an idle rank", idle),
            deal(judge, task, "odd, more ranks",
                 odd("odd, more ranks", judge.draw("odd ranks", 5, 6)))};
}

/// Returns runs in which gradients are not 0 before the call, also on ranks without rows.
std::vector<TaskRun> runs_with_gradients(const Judge& judge, const std::string& task) {
    std::vector<TaskRun> runs = whole_runs(judge, task);
    for (TaskRun& run : runs) {
        const std::int64_t before = judge.draw("gradients before", 2, 9);
        run.name += fmt::format(", gradients of {} before", before);
        for (RankTask& own : run.ranks)
            own.numbers["gradients before"] = before;
    }
    return runs;
}

// All ranks have the same number of rows, in whole micro-batches. Costs are judged in
// these runs, so that a mean of means does not cost points twice.

std::vector<TaskRun> even_run(const Judge& judge, const std::string& task) {
    const std::vector<Share> shares(
        static_cast<std::size_t>(judge.draw("even ranks", 3, 5)), {2});
    return {deal(judge, task, "even", shares)};
}

/// Returns a run in which a micro-batch's activations are most of what a device holds.
std::vector<TaskRun> wide_run(const Judge& judge, const std::string& task) {
    MicroBatchCase wide = network(judge, "wide");
    wide.features = 3;
    wide.width = judge.draw("wide hidden", 24, 32);
    const std::vector<Share> shares(3, {judge.draw("wide micro-batches", 5, 7)});
    return {deal(judge, task, wide, judge.draw("wide rows at once", 56, 72), shares)};
}

/// Returns a run with many micro-batches.
std::vector<TaskRun> long_run(const Judge& judge, const std::string& task) {
    const std::vector<Share> shares(4, {judge.draw("long micro-batches", 11, 14)});
    return {deal(judge, task, network(judge, "long"),
                 judge.draw("long rows at once", 6, 9), shares)};
}

// Questions about a run.

void judge_loss(Judge& judge, const TaskRun& run) {
    const bool trains = run.ranks.front().task == "train";
    AskedValues asked{{trains ? "losses" : "loss"}};
    asked.called = [=](const std::string&) {
        return trains ? "the mean loss of each step" : "the mean loss";
    };
    asked.cause = suspected_sums(judge, run);
    judge.as_right(run, asked);
}

void judge_gradient(Judge& judge, const TaskRun& run) {
    judge_parameters(judge, run);
    judge_loss(judge, run);
}

void judge_batch_gradient(Judge& judge, const TaskRun& run) {
    judge_gradient(judge, run);
    judge_own_rows(judge, run);
}

void judge_training(Judge& judge, const TaskRun& run) {
    judge_parameters(judge, run);
    judge_own_rows(judge, run);
}

void judge_shard_gradient(Judge& judge, const TaskRun& run) {
    judge_gradient(judge, run);
    judge.figures_as_right(run, "a2.1", {{kMessages}});
}

/// Judges how many micro-batches a rank makes: smaller ones would need less memory than
/// is asked for, and take longer. The network has one tanh, which counts its forwards.
void ask_micro_batches(Judge& judge, const TaskRun& run, const std::string& exercise) {
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
        judge.figure_as_right(
            run, fmt::format("{}: {}: rank {}: micro-batches", exercise, run.name, rank),
            "forward passes",
            [&](const RunReport& report) {
                return std::ranges::count_if(report.trace, [&](const TraceEvent& event) {
                    return event.rank == static_cast<int>(rank) &&
                           event.name == ops::Tanh::kName;
                });
            },
            {}, "as few micro-batches as it takes, of at most most_rows rows");
}

void judge_rests(Judge& judge, const TaskRun& run) {
    judge_shard_gradient(judge, run);
    ask_micro_batches(judge, run, "a2.1");
}

/// The buffer has at least 64 elements, and may have a few more than needed. The chunks
/// of a ring differ by one element, and the ring may begin with any chunk.
void judge_traffic(Judge& judge, const TaskRun& run) {
    judge.needs_values(run);
    judge.traffic_as_right(run, judge.exercise(), {3, 8});
}

/// Returns a function that judges bytes. Values must be right only with equal shards:
/// other criteria judge the values with unequal shards.
std::function<void(Judge&)> bytes_of_runs(const char* task) {
    return [=](Judge& judge) {
        judge.needs_values(even_run(judge, task).front(), judge_parameters);
        each_run({even_run, whole_runs, odd_runs}, task, judge_traffic)(judge);
    };
}

std::function<void(Judge&)> memory_of(const std::string& exercise, const char* task) {
    return each_run({wide_run}, task, [=](Judge& judge, const TaskRun& run) {
        judge.needs(exercise + "-values",
                    [&](Judge& asking) { judge_parameters(asking, run); });
        judge.figures_as_right(run, exercise, {{kPeak, {100, 50}}});
        if (run.ranks.front().task != "train") ask_micro_batches(judge, run, exercise);
    });
}

void judge_memory_of_training(Judge& judge) {
    memory_of("a2.2", "batch_gradient")(judge);
    memory_of("a2.3", "train")(judge);
}

void judge_time(Judge& judge, const TaskRun& run) {
    judge.needs_values(run, judge_parameters);
    judge.time_as_right(run, "a2.3", {30, 30},
                        "all gradients go in one all-reduce, once a step");
}

std::vector<Criterion> criteria() {
    const std::vector<std::string> gradients{"a2.1-values", "a2.1-rests", "a2.1-before",
                                             "a2.2-values"};
    return {
        {"a2.1-values",
         "shard_gradient leaves the gradient of the mean over the shard's rows", 15,
         "accumulate", each_run({whole_runs}, "shard_gradient", judge_shard_gradient)},
        {"a2.1-rests",
         "all rows have the same weight, also those of a smaller last micro-batch", 10,
         "accumulate", each_run({odd_runs}, "shard_gradient", judge_rests),
         /*needs=*/{}, /*after=*/{"a2.1-values"}},
        {"a2.1-before",
         "shard_gradient does not add to the gradients from before the call", 10,
         "accumulate",
         each_run({runs_with_gradients}, "shard_gradient", judge_shard_gradient),
         /*needs=*/{}, /*after=*/{"a2.1-values"}},
        {"a2.1-memory", "shard_gradient holds one micro-batch's activations", 15,
         "measure", memory_of("a2.1", "shard_gradient")},
        {"a2.2-values",
         "batch_gradient leaves every rank the gradient of the mean over all rows", 15,
         "average", each_run({whole_runs}, "batch_gradient", judge_batch_gradient),
         /*needs=*/{}, /*after=*/{"a2.1-values"}},
        {"a2.2-bytes", "batch_gradient is one all-reduce of the gradients and the loss",
         15, "ring", bytes_of_runs("batch_gradient")},
        {"a2.3-values", "train ends with one device's parameters on every rank", 5,
         "distribute", each_run({whole_runs, odd_runs}, "train", judge_training),
         /*needs=*/{}, gradients},
        {"a2.3-losses", "train gives the mean loss over all rows before each step", 5,
         "average", each_run({whole_runs, odd_runs}, "train", judge_loss),
         /*needs=*/{"a2.3-values"}, gradients},
        {"a2.3-bytes", "train sends one all-reduce per step, and nothing else", 3, "ring",
         bytes_of_runs("train")},
        {"a2.3-memory", "batch_gradient and train hold one micro-batch's activations", 3,
         "measure", judge_memory_of_training},
        {"a2.3-time", "a step takes a rank's micro-batches and one all-reduce", 4,
         "measure", each_run({long_run}, "train", judge_time)}};
}

}  // namespace

Assignment data_parallel_assignment() {
    return {
        "data-parallel",
        "Gradient accumulation and data parallelism",
        "The gradient of a batch that is sharded unequally over the ranks: micro-batches "
        "on each rank, one all-reduce per step, and training with this gradient.",
        {"data_parallel.hpp", "data_parallel.cpp", "adapters.cpp"},
        taught_by("gradient-accumulation", criteria()),
        data_parallel_solutions};
}

}  // namespace lockstep::lessons

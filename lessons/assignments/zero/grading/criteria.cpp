#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/micro_batches.hpp"
#include "lessons/grader/judge.hpp"
#include "src/device/operations/optimizer.hpp"

namespace lockstep::lessons {

namespace {

/// The bound for values. AdamW divides by gradients' size, so rounding matters more.
constexpr double kBound = 1e-9;

struct ZeroCase : MicroBatchCase {
    int steps = 3;

    std::int64_t elements(int layer) const { return (in(layer) + 1) * out(layer); }
    /// Returns the number of elements of a rank's range of the layer.
    std::int64_t range(int layer) const {
        return (elements(layer) + ranks() - 1) / ranks();
    }
};

// The grader's cases, drawn again for each grading.

/// Equal numbers of micro-batches, and a last layer that several ranks divide unequally.
ZeroCase even_case(const Judge& judge, const std::string& label, std::int64_t ranks,
                   int low, int high) {
    const auto count = static_cast<int>(judge.draw(label + ", micro-batches", low, high));
    ZeroCase drawn{draw_case(judge, label,
                             std::vector<int>(static_cast<std::size_t>(ranks), count))};
    while (ranks > 1 && drawn.elements(drawn.layers - 1) % ranks == 0) {
        ++drawn.width;
        ++drawn.classes;
    }
    return drawn;
}

/// Returns a case for costs: one step, layers of one size that the number of ranks
/// divides, and one micro-batch of `rows` rows on each rank. So mistakes in accumulation
/// and in sizes do not cost points twice.
ZeroCase wide_case(const std::string& label, int layers, std::int64_t rows,
                   std::int64_t width) {
    return {{label, {4, {rows}}, layers, width, width, width}, 1};
}

/// Returns a layer's weight and bias, one after the other, and zeros up to the
/// end of the last range.
HostTensor layer_values(const Judge& judge, const ZeroCase& one, int layer) {
    const auto network = draw_network(judge, one);
    HostTensor flat(Shape::flat(one.ranks() * one.range(layer)), DType::f64);
    std::int64_t next = 0;
    for (const char* part : {"weight", "bias"}) {
        const HostTensor& values = network.at(fmt::format("layer{}.{}", layer, part));
        for (std::int64_t i = 0; i < values.elements(); ++i)
            flat.set(next++, values.at(i));
    }
    return flat;
}

/// Returns a stage's run. Each rank is given whole layers or, in stage 3, its ranges.
TaskRun given(const Judge& judge, const std::string& stage, const ZeroCase& one) {
    RankTask same{stage, {}, {}};
    // With a small epsilon, AdamW would hide a wrong factor of the gradients.
    same.numbers = {{"layers", one.layers},
                    {"steps", one.steps},
                    {"learning rate in thousandths", 20},
                    {"weight decay in thousandths", 100},
                    {"epsilon in thousandths", 10}};
    std::vector<RankTask> ranks(one.rows.size(), same);
    for (int layer = 0; layer < one.layers; ++layer) {
        const std::string name = fmt::format("layer{}", layer);
        const HostTensor whole = layer_values(judge, one, layer);
        std::int64_t begin = 0;
        for (RankTask& own : ranks) {
            own.tensors.emplace(
                name, TaskTensor{stage == "stage_3" ? whole.rows(begin, one.range(layer))
                                                    : whole,
                                 MemoryCategory::parameters});
            own.numbers[name + " in"] = one.in(layer);
            own.numbers[name + " out"] = one.out(layer);
            begin += one.range(layer);
        }
    }
    return run_on_rows(judge, one, std::move(ranks));
}

/// Returns runs on one rank, and on ranks with different rows. In stage 1, ranks also
/// have different numbers of micro-batches.
std::vector<TaskRun> small_runs(const Judge& judge, const std::string& stage) {
    const auto some = [&](const char* what) {
        return static_cast<int>(judge.draw(what, 2, 3));
    };
    const ZeroCase last = stage == "stage_1"
                              ? ZeroCase{draw_case(judge, "an idle rank",
                                                   {some("first"), 0, some("third"), 1})}
                              : even_case(judge, "four ranks", 4, 2, 2);
    std::vector<TaskRun> runs;
    for (const ZeroCase& one :
         {even_case(judge, "three ranks", 3, 1, 1), even_case(judge, "one rank", 1, 2, 3),
          even_case(judge, "more ranks", judge.draw("more ranks", 5, 7), 2, 3), last})
        runs.push_back(given(judge, stage, one));
    return runs;
}

/// Returns a run for memory, with small activations and large layers.
std::vector<TaskRun> heavy_run(const Judge& judge, const std::string& stage) {
    return {given(judge, stage,
                  wide_case("8 large layers", 8, judge.draw("few rows", 2, 4),
                            4 * judge.draw("large width", 15, 17)))};
}

/// Returns a run in which an all-gather or a reduce-scatter of a layer takes about as
/// long as its forward. Devices are so slow that few rows are enough for that: then
/// layers are most of the memory, and the same run shows time and memory.
TaskRun timed_run(const Judge& judge, const std::string& stage, int steps) {
    constexpr std::int64_t kSlower = 10;
    ZeroCase timed = wide_case(
        fmt::format("6 wide layers, {} step{}", steps, steps == 1 ? "" : "s"), 6,
        judge.draw("many rows", 156, 164) / kSlower, 4 * judge.draw("width", 31, 33));
    timed.steps = steps;
    TaskRun run = given(judge, stage, timed);
    run.spec.flops_f64 /= kSlower;
    return run;
}

// Questions about a run.

bool is_of(const TaskRun& run, const char* stage) {
    return run.ranks.front().task == stage;
}

/// Judges the layers' values; in stages 1 and 2, each rank has all, with the same bits.
void judge_values(Judge& judge, const TaskRun& run) {
    const bool in_ranges = is_of(run, "stage_3");
    AskedValues asked;
    asked.called = [=](const std::string& layer) {
        return (in_ranges ? "own range of " : "values of ") + layer;
    };
    asked.bound = kBound;
    asked.same_on_ranks = !in_ranges;
    judge.as_right(run, asked);
}

constexpr RankFigure kReduced{
    "sent by reduce_scatter", "bytes",
    [](const RankReport& rank) { return rank.bytes_sent_by("reduce_scatter"); }};
constexpr RankFigure kGathered{"sent by all_gather", "bytes", [](const RankReport& rank) {
                                   return rank.bytes_sent_by("all_gather");
                               }};

/// Judges values, and whether they come by a stage's way: a rank updates only its range.
/// In stages 2 and 3 each micro-batch is reduced by itself, and in stage 3 values are
/// gathered for each micro-batch. Fewer bytes than the reference's are another
/// criterion's matter, if a stage's way is seen in them.
void judge_values_by_stage(Judge& judge, const TaskRun& run) {
    judge_values(judge, run);
    judge_own_rows(judge, run);
    judge.moved_as_right(run, judge.exercise(), ops::AdamW::kName, {50, 50},
                         "each rank updates only its own range of each layer");
    if (!is_of(run, "stage_1"))
        judge.figures_as_right(run, judge.exercise(),
                               {{kReduced,
                                 {5, kAnyMore},
                                 "",
                                 "each micro-batch's gradients are reduced and scattered "
                                 "by themselves"}});
    if (is_of(run, "stage_3"))
        judge.figures_as_right(run, judge.exercise(),
                               {{kGathered,
                                 {50, kAnyMore},
                                 "",
                                 "each micro-batch's layers are gathered for their work, "
                                 "and let go of after it"}});
}

void judge_sent(Judge& judge, const TaskRun& run) {
    judge.needs_values(run);
    judge.verbs_as_right(run, judge.exercise());
}

/// Judges bytes. With several micro-batches, another criterion judges the values.
std::function<void(Judge&)> bytes_of(const std::string& stage) {
    return [=](Judge& judge) {
        judge.needs_values(heavy_run(judge, stage).front(), judge_values);
        each_run({heavy_run, small_runs}, stage, judge_sent)(judge);
    };
}

constexpr RankFigure kOptimizer{"optimizer's state", "bytes of memory",
                                [](const RankReport& rank) {
                                    return rank.memory.peak_of(MemoryCategory::optimizer);
                                }};

/// Returns the runs for memory: with large layers, and the run for time. So no program
/// can hold less in the one and take less time in the other.
std::vector<TaskRun> memory_runs(const Judge& judge, const std::string& stage) {
    std::vector<TaskRun> runs = heavy_run(judge, stage);
    runs.push_back(timed_run(judge, stage, 1));
    return runs;
}

/// Judges memory. In stage 1 a rank may also hold the reduced gradients of its range.
void judge_memory(Judge& judge, const TaskRun& run) {
    judge.needs_values(run, judge_values);
    judge.figures_as_right(
        run, judge.exercise(),
        {{kOptimizer, {0, 1}}, {kPeak, {100, is_of(run, "stage_1") ? 15 : 4}}});
}

/// Judges the time of the second step, which has none of the preparations that a program
/// makes before the first step. The second step's time is a difference of two runs, so
/// the first step must not take long either; preparations may take a few per cent.
void judge_time(Judge& judge, const std::string& stage, int percent_more,
                const char* less) {
    const TaskRun first = timed_run(judge, stage, 1);
    const TaskRun both = timed_run(judge, stage, 2);
    judge.needs_values(first, judge_values);
    judge.needs_values(both, judge_values);
    judge.time_as_right(first, judge.exercise(), {24, 15}, less);
    judge.figure(
        fmt::format("{}: {}: time of the second", judge.exercise(), both.name),
        kPicoseconds,
        judge.right(both).report.makespan() - judge.right(first).report.makespan(),
        judge.run(both).report.makespan() - judge.run(first).report.makespan(),
        {24, percent_more}, less);
}

/// Allows 3 % more, because a student may gather new values after updating all ranges.
void judge_time_of_stage_2(Judge& judge) {
    judge_time(judge, "stage_2", 3,
               "overlap a layer's reduce-scatter with the backward of the layer before "
               "it: wait for it after that backward");
}

void judge_time_of_stage_3(Judge& judge) {
    judge_time(judge, "stage_3", 1,
               "gather a layer's values while the layer before it computes, in forward "
               "and in backward: launch each gather one layer ahead");
}

std::vector<Criterion> criteria() {
    return {
        {"a8.1-values", "stage 1 ends with one device's values on every rank", 15,
         "stage_1", each_run({small_runs}, "stage_1", judge_values_by_stage)},
        {"a8.1-bytes", "stage 1 sends a reduce-scatter and an all-gather per step", 8,
         "stage_1", bytes_of("stage_1")},
        {"a8.1-memory", "stage 1 holds an n-th of the optimizer's state", 11, "stage_1",
         each_run({heavy_run}, "stage_1", judge_memory)},
        {"a8.2-values", "stage 2 ends with one device's values on every rank", 10,
         "stage_2", each_run({small_runs}, "stage_2", judge_values_by_stage)},
        {"a8.2-bytes",
         "stage 2 sends a reduce-scatter per micro-batch and an all-gather per step", 5,
         "stage_2", bytes_of("stage_2")},
        {"a8.2-memory", "stage 2 holds the gradients of its ranges and two layers", 8,
         "stage_2", each_run({memory_runs}, "stage_2", judge_memory)},
        {"a8.2-time", "stage 2's reductions run beside backward", 10, "stage_2",
         judge_time_of_stage_2},
        {"a8.3-values", "stage 3 ends with one device's values, in ranges", 10, "stage_3",
         each_run({small_runs}, "stage_3", judge_values_by_stage)},
        {"a8.3-bytes",
         "stage 3 gathers twice and reduces once per micro-batch, less the last layer's "
         "second gather",
         5, "stage_3", bytes_of("stage_3")},
        {"a8.3-memory",
         "stage 3 holds its ranges, and values and gradients of two layers", 8, "stage_3",
         each_run({memory_runs}, "stage_3", judge_memory)},
        {"a8.3-time", "stage 3 gathers values in time", 10, "prefetch",
         judge_time_of_stage_3}};
}

}  // namespace

Assignment zero_assignment() {
    return {"zero",
            "ZeRO: replicas that shard what they hold",
            "The optimizer's state, then gradients, then values are sharded over "
            "replicas: the three stages of ZeRO, the third with prefetching.",
            {"zero.hpp", "zero.cpp", "adapters.cpp"},
            taught_by("zero", criteria()),
            zero_solutions};
}

}  // namespace lockstep::lessons

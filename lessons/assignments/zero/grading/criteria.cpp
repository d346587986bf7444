#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/micro_batches.hpp"
#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

namespace {

/// Bounds values: the order of sums counts more where AdamW divides by their size.
constexpr double kBound = 1e-9;

struct ZeroCase : MicroBatchCase {
    int steps = 3;

    std::int64_t elements(int layer) const { return (in(layer) + 1) * out(layer); }
    /// A rank's range of the layer has so many.
    std::int64_t range(int layer) const {
        return (elements(layer) + ranks() - 1) / ranks();
    }
};

// The grader's cases, drawn anew for each grading. A stage is 1, 2 or 3.

/// Ranks have the same number of micro-batches, and do not divide the last layer.
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

/// One rank, and ranks with different rows; in stage 1 with different numbers of
/// micro-batches, too.
std::vector<ZeroCase> zero_cases(const Judge& judge, int stage) {
    const auto some = [&](const char* what) {
        return static_cast<int>(judge.draw(what, 2, 3));
    };
    return {even_case(judge, "one rank", 1, 2, 3),
            even_case(judge, "three ranks", 3, 1, 1),
            even_case(judge, "more ranks", judge.draw("more ranks", 5, 7), 2, 3),
            stage == 1 ? ZeroCase{draw_case(judge, "an idle rank",
                                            {some("first"), 0, some("third"), 1})}
                       : even_case(judge, "four ranks", 4, 2, 2)};
}

/// One step of equal layers that ranks divide, each rank with one micro-batch of the same
/// rows, for what a step costs. So mistakes of accumulation and of sizes cost no points
/// twice.
ZeroCase wide_case(const std::string& label, int layers, std::int64_t rows,
                   std::int64_t width) {
    return {{label, {4, {rows}}, layers, width, width, width}, 1};
}

/// For memory: activations are few, and a layer's values many.
ZeroCase heavy_case(const Judge& judge) {
    return wide_case("8 large layers", 8, judge.draw("few rows", 2, 4),
                     4 * judge.draw("large width", 15, 17));
}

/// For time: an all-gather or a reduce-scatter of a layer takes about as long as its
/// forward.
ZeroCase timed_case(const Judge& judge) {
    return wide_case("6 wide layers", 6, judge.draw("many rows", 156, 164),
                     4 * judge.draw("width", 31, 33));
}

/// Returns a layer's weight and bias, one behind the other, and zeros up to the end of
/// the last range.
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

/// Returns a stage's run: each rank is given whole layers, or in stage 3 its ranges.
TaskRun given(const Judge& judge, int stage, const ZeroCase& one) {
    RankTask same{fmt::format("stage_{}", stage), {}, {}};
    // The gradient's size counts if epsilon is large: AdamW forgives a factor otherwise.
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
                name, TaskTensor{stage == 3 ? whole.rows(begin, one.range(layer)) : whole,
                                 MemoryCategory::parameters});
            own.numbers[name + " in"] = one.in(layer);
            own.numbers[name + " out"] = one.out(layer);
            begin += one.range(layer);
        }
    }
    return run_on_rows(judge, one, std::move(ranks));
}

// What is asked of a run.

std::string exercise(int stage) {
    return fmt::format("a8.{}", stage);
}

/// Ranks leave values of layers: all of them in stages 1 and 2, with the same bits.
void judge_run_values(Judge& judge, int stage, const TaskRun& run) {
    const std::string what = stage == 3 ? "own range of " : "values of ";
    AskedValues asked;
    asked.called = [&](const std::string& layer) { return what + layer; };
    asked.bound = kBound;
    judge.as_right(run, asked);
    const std::vector<RankResult>& ranks = judge.run(run).ranks;
    for (std::size_t rank = 0; rank < ranks.size() && stage != 3; ++rank)
        for (const auto& [layer, values] : ranks.front().tensors)
            judge.same(fmt::format("{}: rank {}: {}{} as on rank 0", run.name, rank, what,
                                   layer),
                       judge.left(ranks[rank], layer), values);
}

void judge_values(Judge& judge, int stage) {
    for (const ZeroCase& one : zero_cases(judge, stage))
        judge_run_values(judge, stage, given(judge, stage, one));
}

/// Returns a run whose values are right: bytes, time and memory count of no others.
TaskRun right_run(const Judge& judge, int stage, const ZeroCase& one) {
    TaskRun run = given(judge, stage, one);
    judge.needs(exercise(stage) + "-values",
                [&](Judge& asking) { judge_run_values(asking, stage, run); });
    return run;
}

void judge_bytes(Judge& judge, int stage) {
    judge.verbs_as_right(right_run(judge, stage, heavy_case(judge)), exercise(stage));
    // Another criterion says what is wrong with values of several micro-batches.
    for (const ZeroCase& one : zero_cases(judge, stage)) {
        const TaskRun run = given(judge, stage, one);
        judge.needs(exercise(stage) + "-values", [&](Judge& asking) { asking.run(run); });
        judge.verbs_as_right(run, exercise(stage));
    }
}

void judge_memory(Judge& judge, int stage) {
    const TaskRun run = right_run(judge, stage, heavy_case(judge));
    for (std::size_t rank = 0; rank < run.ranks.size(); ++rank)
        judge.figure_as_right(
            run,
            fmt::format("{}: {}: rank {}: optimizer's state", exercise(stage), run.name,
                        rank),
            "bytes of memory",
            [=](const RunReport& report) {
                return report.ranks[rank].memory.peak_of(MemoryCategory::optimizer);
            },
            {0, 1});
    // In stage 1 sums may lie beside the whole gradients: an n-th more of these.
    judge.figures_as_right(run, exercise(stage), {{kPeak, {100, stage == 1 ? 15 : 4}}});
}

/// Judges how long a second step takes, so that what is made before the first is not in
/// it.
void judge_time(Judge& judge, int stage) {
    ZeroCase one = timed_case(judge);
    const TaskRun first = right_run(judge, stage, one);
    one.label += ", 2 steps";
    one.steps = 2;
    const TaskRun both = right_run(judge, stage, one);
    // In stage 2 new values may be gathered when all are updated.
    judge.figure(
        fmt::format("{}: {}: time of the second", exercise(stage), both.name),
        kPicoseconds,
        judge.right(both).report.makespan() - judge.right(first).report.makespan(),
        judge.run(both).report.makespan() - judge.run(first).report.makespan(),
        {24, stage == 2 ? 3 : 1},
        stage == 2
            ? "a layer's reduce-scatter runs beside the backward of the layer before it: "
              "it is waited for when that is done"
            : "a layer's values are gathered while the layer before it computes, in "
              "forward and in backward: each is launched one layer ahead");
}

Criterion criterion(int stage, const char* what, const std::string& title, int points,
                    const char* step, void (*judge)(Judge&, int)) {
    return {fmt::format("{}-{}", exercise(stage), what), title, points,
            lesson_step("zero", step), [=](Judge& asking) { judge(asking, stage); }};
}

std::vector<Criterion> zero_criteria() {
    return {
        criterion(1, "values", "stage 1 ends with one device's values on every rank", 15,
                  "stage_1", judge_values),
        criterion(1, "bytes", "stage 1 sends a reduce-scatter and an all-gather a step",
                  8, "stage_1", judge_bytes),
        criterion(1, "memory", "stage 1 holds an n-th of the optimizer's state", 11,
                  "stage_1", judge_memory),
        criterion(2, "values", "stage 2 ends with one device's values on every rank", 10,
                  "stage_2", judge_values),
        criterion(2, "bytes",
                  "stage 2 sends a reduce-scatter a micro-batch and an all-gather a step",
                  5, "stage_2", judge_bytes),
        criterion(2, "memory", "stage 2 holds the gradients of its ranges and two layers",
                  8, "stage_2", judge_memory),
        criterion(2, "time", "stage 2's reductions run beside backward", 10, "stage_2",
                  judge_time),
        criterion(3, "values", "stage 3 ends with one device's values, in ranges", 10,
                  "stage_3", judge_values),
        criterion(3, "bytes",
                  "stage 3 gathers twice and reduces once a micro-batch, less the last "
                  "layer's second gather",
                  5, "stage_3", judge_bytes),
        criterion(3, "memory",
                  "stage 3 holds its ranges, and values and gradients of two layers", 8,
                  "stage_3", judge_memory),
        criterion(3, "time", "stage 3 gathers values in time", 10, "prefetch",
                  judge_time)};
}

}  // namespace

Assignment zero_assignment() {
    return {"zero",
            "ZeRO: replicas that share out what they hold",
            "The optimizer's state, then gradients, then values, shared out among "
            "replicas: the three stages of ZeRO, the third with prefetching.",
            {"zero.hpp", "zero.cpp", "adapters.cpp"},
            zero_criteria(),
            zero_solutions};
}

}  // namespace lockstep::lessons

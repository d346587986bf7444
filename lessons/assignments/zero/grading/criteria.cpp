#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/micro_batches.hpp"
#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"
#include "src/device/options.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kRateInThousandths = 20;
constexpr std::int64_t kDecayInThousandths = 100;
/// So large that the gradient's size counts: AdamW forgives a factor otherwise.
constexpr std::int64_t kEpsilonInThousandths = 10;

struct ZeroCase : MicroBatchCase {
    int steps = 3;

    std::int64_t elements(int layer) const { return (in(layer) + 1) * out(layer); }
    /// A rank's range of the layer has so many.
    std::int64_t range(int layer) const {
        return (elements(layer) + ranks() - 1) / ranks();
    }
};

/// A layer's weight and bias, one behind the other, then zeros, so many elements.
HostTensor flat_layer(const NetworkTensors& network, const std::string& layer,
                      std::int64_t elements) {
    HostTensor flat(Shape::flat(elements), DType::f64);
    std::int64_t next = 0;
    for (const char* part : {".weight", ".bias"}) {
        const HostTensor& values = network.at(layer + part);
        for (std::int64_t i = 0; i < values.elements(); ++i)
            flat.set(next++, values.at(i));
    }
    return flat;
}

/// Which of ZeRO's stages a task asks for.
enum class Stage : std::uint8_t { one = 1, two, three };

const TaskResult& run_case(Judge& judge, Stage stage, const ZeroCase& one) {
    RankTask same{fmt::format("stage_{}", static_cast<int>(stage)), {}, {}};
    same.numbers = {{"layers", one.layers},
                    {"steps", one.steps},
                    {"learning rate in thousandths", kRateInThousandths},
                    {"weight decay in thousandths", kDecayInThousandths},
                    {"epsilon in thousandths", kEpsilonInThousandths}};
    const NetworkTensors network = draw_network(judge, one);
    std::vector<RankTask> given(one.rows.size(), same);
    for (std::size_t rank = 0; rank < given.size(); ++rank) {
        RankTask& own = given[rank];
        for (int layer = 0; layer < one.layers; ++layer) {
            const std::string name = fmt::format("layer{}", layer);
            const std::int64_t range = one.range(layer);
            HostTensor values = flat_layer(network, name, one.ranks() * range);
            if (stage == Stage::three)
                values = values.rows(static_cast<std::int64_t>(rank) * range, range);
            own.tensors.emplace(name, TaskTensor{values, MemoryCategory::parameters});
            own.numbers[name + " in"] = one.in(layer);
            own.numbers[name + " out"] = one.out(layer);
        }
    }
    return run_on_rows(judge, one, std::move(given));
}

/// AdamW on one device that has all rows, by its formula (src/nn/optimizer.hpp).
NetworkTensors train_alone(const Judge& judge, const ZeroCase& one) {
    const AdamWOptions usual;
    const double rate = kRateInThousandths / 1000.0;
    const double decay = kDecayInThousandths / 1000.0;
    const double epsilon = kEpsilonInThousandths / 1000.0;
    NetworkTensors network = draw_network(judge, one);
    const std::vector<ClassifiedRows> rows = draw_rows(judge, one);
    NetworkTensors first, second;
    for (const auto& [name, values] : network)
        for (NetworkTensors* moments : {&first, &second})
            moments->emplace(name, HostTensor(values.shape(), DType::f64));
    for (int step = 1; step <= one.steps; ++step) {
        const MeanLoss mean = mean_loss(one.layer_names(), network, rows);
        const double first_bias = 1 - std::pow(usual.beta1, step);
        const double second_bias = 1 - std::pow(usual.beta2, step);
        for (auto& [name, values] : network)
            for (std::int64_t i = 0; i < values.elements(); ++i) {
                const double g = mean.gradients.at(name).at(i);
                HostTensor &m = first.at(name), &v = second.at(name);
                m.set(i, usual.beta1 * m.at(i) + (1 - usual.beta1) * g);
                v.set(i, usual.beta2 * v.at(i) + (1 - usual.beta2) * g * g);
                const double by =
                    m.at(i) / first_bias / (std::sqrt(v.at(i) / second_bias) + epsilon);
                values.set(i, values.at(i) * (1 - rate * decay) - rate * by);
            }
    }
    return network;
}

/// Numbers of ranks that are no powers of two, sizes that they do not divide, one rank,
/// ranks with different rows; in stage 1 with different numbers of micro-batches, too.
std::vector<ZeroCase> zero_cases(const Judge& judge, Stage stage) {
    const bool alike = stage != Stage::one;
    const ZeroCase drawn{draw_case(judge, "a drawn network", alike)};
    if (alike)
        return {{{"3 layers", {{5, 1}}}},
                {{"3 layers", {{3}, {2}, {4}}}},
                {{"2 layers", {{2, 2}, {1, 3}, {6, 1}, {1, 1}}, 2}},
                drawn};
    return {{{"3 layers", {{5, 1}}}},
            {{"3 layers", {{3, 2, 1}, {2}, {1, 4}}}},
            {{"2 layers", {{2, 2}, {}, {6}, {1, 1, 1}}, 2}},
            drawn};
}

/// For memory: activations are few, and a layer's values many.
ZeroCase large_case() {
    return {{"8 large layers", {{3, 3}, {3, 3}, {3, 3}, {3, 3}}, 8, 64, 64, 64}, 2};
}

/// For time: an all-gather or a reduce-scatter of a layer takes about as long as its
/// forward.
ZeroCase timed_case() {
    return {{"6 wide layers", {{160}, {160}, {160}, {160}}, 6, 128, 128, 128}, 1};
}

/// The values of a layer that a run has left; of stage 3 the ranks' ranges together.
HostTensor left_values(Judge& judge, Stage stage, const ZeroCase& one,
                       const TaskResult& result, std::size_t rank, int layer) {
    const std::string name = fmt::format("layer{}", layer);
    const std::int64_t range = one.range(layer);
    if (stage != Stage::three) {
        const HostTensor& values = judge.left(result.ranks[rank], name);
        Judge::form(one.on_rank(rank, name), values, Shape::flat(one.ranks() * range));
        return values.rows(0, one.elements(layer));
    }
    HostTensor all(Shape::flat(one.ranks() * range), DType::f64);
    for (std::int64_t from = 0; from < one.ranks(); ++from) {
        const HostTensor& own =
            judge.left(result.ranks[static_cast<std::size_t>(from)], name);
        Judge::form(one.on_rank(static_cast<std::size_t>(from), name), own,
                    Shape::flat(range));
        for (std::int64_t i = 0; i < range; ++i)
            all.set(from * range + i, own.at(i));
    }
    return all.rows(0, one.elements(layer));
}

void judge_case_values(Judge& judge, Stage stage, const ZeroCase& one) {
    const TaskResult& result = run_case(judge, stage, one);
    const NetworkTensors expected = train_alone(judge, one);
    for (int layer = 0; layer < one.layers; ++layer) {
        const std::string name = fmt::format("layer{}", layer);
        const HostTensor flat = flat_layer(expected, name, one.elements(layer));
        const auto left = [&](std::size_t rank) {
            return left_values(judge, stage, one, result, rank, layer);
        };
        if (stage == Stage::three) {
            judge.close(fmt::format("{}: the ranges of {} together", one.name(), name),
                        left(0), flat, 1e-9);
            continue;
        }
        for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
            judge.close(one.on_rank(rank, "values of " + name), left(rank), flat, 1e-9);
            judge.same(one.on_rank(rank, "values of " + name + " as on rank 0"),
                       left(rank), left(0));
        }
    }
}

std::string target(Stage stage, const std::string& what) {
    return fmt::format("a8.{}: {}", static_cast<int>(stage), what);
}

void judge_values(Judge& judge, Stage stage) {
    for (const ZeroCase& one : zero_cases(judge, stage))
        judge_case_values(judge, stage, one);
}

void judge_bytes(Judge& judge, Stage stage) {
    for (const ZeroCase& one : zero_cases(judge, stage)) {
        judge_case_values(judge, stage, one);
        const TaskResult& result = run_case(judge, stage, one);
        for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
            std::map<std::string, std::int64_t> sent{{"reduce_scatter", 0},
                                                     {"all_gather", 0}};
            for (const Traffic& traffic : result.report.ranks[rank].traffic)
                sent[traffic.verb] += traffic.bytes_sent;
            for (const auto& [verb, bytes] : sent)
                if (verb == "reduce_scatter" || verb == "all_gather")
                    judge.as_reference(
                        target(stage, one.on_rank(rank, "sent by " + verb)), "bytes",
                        bytes);
                else
                    judge.ask(bytes == 0, one.on_rank(rank, "nothing sent by " + verb),
                              fmt::format("{} bytes", bytes));
        }
    }
}

void judge_memory(Judge& judge, Stage stage) {
    const ZeroCase one = large_case();
    judge_case_values(judge, stage, one);
    const TaskResult& result = run_case(judge, stage, one);
    // In stage 1 sums may lie beside the whole gradients: an n-th more of these.
    const int percent_more = stage == Stage::one ? 15 : 4;
    for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
        const MemoryReport& memory = result.report.ranks[rank].memory;
        judge.as_reference(target(stage, one.on_rank(rank, "optimizer's state")),
                           "bytes of memory", memory.peak_of(MemoryCategory::optimizer),
                           {0, 1});
        judge.as_reference(target(stage, one.on_rank(rank, "peak")), "bytes of memory",
                           memory.peak, {100, percent_more});
    }
}

void judge_time(Judge& judge, Stage stage) {
    const ZeroCase one = timed_case();
    judge_case_values(judge, stage, one);
    // In stage 2 new values may be gathered when all are updated.
    const int percent_more = stage == Stage::two ? 8 : 5;
    judge.as_reference(target(stage, one.name() + ": time"), kPicoseconds,
                       run_case(judge, stage, one).report.makespan(), {20, percent_more});
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    int lesson_step, Stage stage, void (*judge)(Judge&, Stage)) {
    return {id, title, points, fmt::format("zero, step {}", lesson_step),
            [=](Judge& asking) { judge(asking, stage); }};
}

std::vector<Criterion> zero_criteria() {
    return {
        criterion("a8.1-values", "stage 1 ends with one device's values on every rank",
                  15, 2, Stage::one, judge_values),
        criterion("a8.1-bytes", "stage 1 sends a reduce-scatter and an all-gather a step",
                  5, 2, Stage::one, judge_bytes),
        criterion("a8.1-memory", "stage 1 holds an n-th of the optimizer's state", 10, 2,
                  Stage::one, judge_memory),
        criterion("a8.2-values", "stage 2 ends with one device's values on every rank",
                  10, 3, Stage::two, judge_values),
        criterion("a8.2-bytes",
                  "stage 2 sends a reduce-scatter a micro-batch and an all-gather a step",
                  5, 3, Stage::two, judge_bytes),
        criterion("a8.2-memory",
                  "stage 2 holds the gradients of its ranges and two layers", 10, 3,
                  Stage::two, judge_memory),
        criterion("a8.2-time", "stage 2's reductions run beside backward", 10, 3,
                  Stage::two, judge_time),
        criterion("a8.3-values", "stage 3 ends with one device's values, in ranges", 10,
                  4, Stage::three, judge_values),
        criterion("a8.3-bytes",
                  "stage 3 gathers twice and reduces once a micro-batch, less the last "
                  "layer's second gather",
                  5, 4, Stage::three, judge_bytes),
        criterion("a8.3-memory",
                  "stage 3 holds its ranges, and values and gradients of two layers", 10,
                  4, Stage::three, judge_memory),
        criterion("a8.3-time", "stage 3 gathers values in time", 10, 5, Stage::three,
                  judge_time)};
}

}  // namespace

Assignment zero_assignment() {
    return {"zero",
            "ZeRO: replicas that share out what they hold",
            "The optimizer's state, then gradients, then values, shared out among "
            "replicas: the three stages of ZeRO, the third with prefetching.",
            {"zero.hpp", "zero.cpp", "adapters.cpp"},
            zero_criteria()};
}

}  // namespace lockstep::lessons

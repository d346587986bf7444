#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/assignments/cost_of.hpp"
#include "lessons/assignments/micro_batches.hpp"
#include "lessons/assignments/needs.hpp"
#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"
#include "src/device/options.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/zero_2.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kRateInThousandths = 20;
constexpr std::int64_t kDecayInThousandths = 100;
/// So large that the gradient's size counts: AdamW forgives a factor otherwise.
constexpr std::int64_t kEpsilonInThousandths = 10;
/// Bounds values: the order of sums counts more where AdamW divides by their size.
constexpr double kBound = 1e-9;

struct ZeroCase : MicroBatchCase {
    int steps = 3;

    std::int64_t elements(int layer) const { return (in(layer) + 1) * out(layer); }
    /// A rank's range of the layer has so many.
    std::int64_t range(int layer) const {
        return (elements(layer) + ranks() - 1) / ranks();
    }
    AdamWOptions adamw() const {
        AdamWOptions options;
        options.learning_rate = kRateInThousandths / 1000.0;
        options.weight_decay = kDecayInThousandths / 1000.0;
        options.epsilon = kEpsilonInThousandths / 1000.0;
        return options;
    }
};

/// Which of ZeRO's stages a task asks for.
enum class Stage : std::uint8_t { one = 1, two, three };

// The grader's cases, drawn anew for each grading.

std::vector<int> micro_batches(const Judge& judge, const std::string& label,
                               std::int64_t ranks, int low, int high) {
    return std::vector<int>(
        static_cast<std::size_t>(ranks),
        static_cast<int>(judge.draw(label + ", micro-batches", low, high)));
}

/// A last layer that ranks do not divide, one rank, ranks with different rows; in stage 1
/// with different numbers of micro-batches, too.
std::vector<ZeroCase> zero_cases(const Judge& judge, Stage stage) {
    const auto alike = [&](const std::string& label, std::int64_t ranks, int low,
                           int high) {
        ZeroCase drawn{
            draw_case(judge, label, micro_batches(judge, label, ranks, low, high))};
        while (ranks > 1 && drawn.elements(drawn.layers - 1) % ranks == 0) {
            ++drawn.width;
            ++drawn.classes;
        }
        return drawn;
    };
    const std::int64_t more = judge.draw("more ranks", 5, 7);
    std::vector<ZeroCase> cases{alike("one rank", 1, 2, 3), alike("three ranks", 3, 1, 1),
                                alike("more ranks", more, 2, 3)};
    const auto some = [&](const char* what) {
        return static_cast<int>(judge.draw(what, 2, 3));
    };
    if (stage == Stage::one)
        cases.push_back(
            {draw_case(judge, "an idle rank", {some("first"), 0, some("third"), 1})});
    else
        cases.push_back(alike("four ranks", 4, 2, 2));
    return cases;
}

/// Wide layers, all alike, for what a step costs: a micro-batch of as many rows a rank,
/// and ranks divide the layers. So mistakes of accumulation and of sizes cost no points
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

// Students' ranks make this of them.

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

/// The values of a layer that a run has left, on each rank, without the zeros; of stage 3
/// the ranks' ranges together, which is one.
OfRanks left_values(Judge& judge, Stage stage, const ZeroCase& one,
                    const TaskResult& result, int layer) {
    const std::string name = fmt::format("layer{}", layer);
    const std::int64_t range = one.range(layer);
    OfRanks left;
    HostTensor all(Shape::flat(one.ranks() * range), DType::f64);
    for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
        const HostTensor& own = judge.left(result.ranks[rank], name);
        const bool whole = stage != Stage::three;
        Judge::form(one.on_rank(rank, name), own,
                    Shape::flat(whole ? one.ranks() * range : range));
        if (whole) left.push_back(own.rows(0, one.elements(layer)));
        for (std::int64_t i = 0; i < range && !whole; ++i)
            all.set(static_cast<std::int64_t>(rank) * range + i, own.at(i));
    }
    if (stage == Stage::three) left.push_back(all.rows(0, one.elements(layer)));
    return left;
}

// Values should be this, and mistakes make that of them.

/// AdamW by its formula (src/nn/optimizer.hpp), and what mistakes change of it.
class Training {
  public:
    Training(const Judge& judge, const ZeroCase& one)
        : one_(one), initial_(draw_network(judge, one)), rows_(draw_rows(judge, one)) {}

    /// Returns the gradients that a step is by, of the network before it.
    using Gradients = std::function<NetworkTensors(const NetworkTensors&)>;

    const NetworkTensors& initial() const { return initial_; }
    NetworkTensors trained() const {
        return by([&](const NetworkTensors& network) { return mean(network); },
                  one_.steps);
    }
    std::vector<std::pair<std::string, NetworkTensors>> wrong_sums() const;
    std::vector<std::pair<std::string, NetworkTensors>> wrong_steps() const;

  private:
    NetworkTensors mean(const NetworkTensors& network) const {
        return mean_loss(one_.layer_names(), network, rows_).gradients;
    }
    NetworkTensors of_micro_batches(
        const NetworkTensors& network,
        const std::function<double(std::size_t, std::size_t)>& factor) const;
    NetworkTensors of_own_ranges(const NetworkTensors& network) const;
    NetworkTensors by(const Gradients& gradients, int steps,
                      bool keeps_moments = true) const;

    ZeroCase one_;
    NetworkTensors initial_;
    std::vector<ClassifiedRows> rows_;
};

/// Trains by `gradients`; without moments, each step is AdamW's first.
NetworkTensors Training::by(const Gradients& gradients, int steps,
                            bool keeps_moments) const {
    const AdamWOptions options = one_.adamw();
    NetworkTensors network = initial_;
    NetworkTensors first, second;
    for (int step = 1; step <= steps; ++step) {
        const NetworkTensors gradient = gradients(network);
        const int count = keeps_moments ? step : 1;
        const double first_bias = 1 - std::pow(options.beta1, count);
        const double second_bias = 1 - std::pow(options.beta2, count);
        for (auto& [name, values] : network) {
            const HostTensor zeros(values.shape(), DType::f64);
            HostTensor& m = first.try_emplace(name, zeros).first->second;
            HostTensor& v = second.try_emplace(name, zeros).first->second;
            if (!keeps_moments) m = v = zeros;
            for (std::int64_t i = 0; i < values.elements(); ++i) {
                const double g = gradient.at(name).at(i);
                m.set(i, options.beta1 * m.at(i) + (1 - options.beta1) * g);
                v.set(i, options.beta2 * v.at(i) + (1 - options.beta2) * g * g);
                const double change =
                    m.at(i) / first_bias /
                    (std::sqrt(v.at(i) / second_bias) + options.epsilon);
                values.set(
                    i, values.at(i) * (1 - options.learning_rate * options.weight_decay) -
                           options.learning_rate * change);
            }
        }
    }
    return network;
}

/// The sum of the micro-batches' mean gradients, each times a factor.
NetworkTensors Training::of_micro_batches(
    const NetworkTensors& network,
    const std::function<double(std::size_t, std::size_t)>& factor) const {
    NetworkTensors sum;
    for (const auto& [name, values] : initial_)
        sum.emplace(name, HostTensor(values.shape(), DType::f64));
    for (std::size_t rank = 0; rank < rows_.size(); ++rank) {
        std::int64_t begin = 0;
        for (std::size_t i = 0; i < one_.rows[rank].size(); ++i) {
            const std::int64_t count = one_.rows[rank][i];
            const ClassifiedRows own{rows_[rank].x.rows(begin, count),
                                     rows_[rank].targets.rows(begin, count)};
            const MeanLoss mean = mean_loss(one_.layer_names(), network, {own});
            for (auto& [name, values] : sum)
                values =
                    weighted_sum({values, mean.gradients.at(name)}, {1, factor(rank, i)});
            begin += count;
        }
    }
    return sum;
}

/// Each rank's own terms of the gradient, of its ranges.
NetworkTensors Training::of_own_ranges(const NetworkTensors& network) const {
    std::vector<NetworkTensors> own;
    own.reserve(rows_.size());
    for (const ClassifiedRows& rows : rows_) {
        own.push_back(mean_loss(one_.layer_names(), network, {rows}).gradients);
        const double share = static_cast<double>(rows.targets.elements()) /
                             static_cast<double>(one_.batch_rows());
        for (auto& [name, values] : own.back())
            values = weighted_sum({values}, {share});
    }
    NetworkTensors put_together = own.front();
    for (int layer = 0; layer < one_.layers; ++layer) {
        std::int64_t place = 0;
        for (const char* part : {".weight", ".bias"}) {
            HostTensor& values = put_together.at(fmt::format("layer{}{}", layer, part));
            for (std::int64_t i = 0; i < values.elements(); ++i, ++place)
                values.set(i, own[static_cast<std::size_t>(place / one_.range(layer))]
                                  .at(fmt::format("layer{}{}", layer, part))
                                  .at(i));
        }
    }
    return put_together;
}

/// Says what is wrong with the sum that a step is by, and which values that leaves.
std::vector<std::pair<std::string, NetworkTensors>> Training::wrong_sums() const {
    const auto weight = [&](std::size_t rank, std::size_t i) {
        return static_cast<double>(one_.rows[rank][i]) /
               static_cast<double>(one_.batch_rows());
    };
    const auto by_micro_batches = [&](const auto& factor) {
        return by(
            [&](const NetworkTensors& network) {
                return of_micro_batches(network, factor);
            },
            one_.steps);
    };
    const auto by_factor = [&](double factor) {
        return by_micro_batches(
            [&](std::size_t rank, std::size_t i) { return factor * weight(rank, i); });
    };
    const auto n = static_cast<double>(one_.ranks());
    return {
        {"gradients are divided by the number of ranks once more", by_factor(1 / n)},
        {"gradients are the number of ranks times too large", by_factor(n)},
        {"each micro-batch's mean counts alike: its weight is missing",
         by_micro_batches([](std::size_t, std::size_t) { return 1.0; })},
        {"only the last micro-batch's gradients count: each has to be added to what the "
         "range has of the step",
         by_micro_batches([&](std::size_t rank, std::size_t i) {
             return i + 1 == one_.rows[rank].size() ? weight(rank, i) : 0;
         })},
        {"only the first micro-batch's gradients count",
         by_micro_batches([&](std::size_t rank, std::size_t i) {
             return i == 0 ? weight(rank, i) : 0;
         })},
        {"each rank updates its range by its own terms of the gradient: the sum over the "
         "ranks is missing",
         by([&](const NetworkTensors& network) { return of_own_ranges(network); },
            one_.steps)}};
}

/// Says what is wrong with the steps, and which values that leaves.
std::vector<std::pair<std::string, NetworkTensors>> Training::wrong_steps() const {
    NetworkTensors sums;
    const auto added = [&](const NetworkTensors& network) {
        for (const auto& [name, values] : mean(network)) {
            HostTensor& sum =
                sums.try_emplace(name, HostTensor(values.shape(), DType::f64))
                    .first->second;
            sum = weighted_sum({sum, values}, {1, 1});
        }
        return sums;
    };
    const auto right = [&](const NetworkTensors& network) { return mean(network); };
    return {
        {"these are the values that the ranks began with", initial_},
        {"that is one step too few", by(right, one_.steps - 1)},
        {"that is one step too many", by(right, one_.steps + 1)},
        {"the gradients of the steps before are in each step's", by(added, one_.steps)},
        {"the optimizer's moments begin anew with each step",
         by(right, one_.steps, /*keeps_moments=*/false)}};
}

/// Says what each rank has outside of its own range, if that is old.
std::string cause_outside(const ZeroCase& one, int layer, const OfRanks& left,
                          const HostTensor& initial, const HostTensor& expected) {
    if (left.size() < 2) return "";
    for (std::size_t rank = 0; rank < left.size(); ++rank) {
        const std::int64_t begin = static_cast<std::int64_t>(rank) * one.range(layer);
        for (std::int64_t i = 0; i < initial.elements(); ++i) {
            const bool own = i >= begin && i < begin + one.range(layer);
            if (!own && left[rank].at(i) != initial.at(i)) return "";
        }
    }
    return Judge::are_close(expected, initial)
               ? ""
               : "outside of its own range each rank has the values that it began with: "
                 "the new ones are not gathered";
}

/// Says which mistake leaves just these values of a layer.
std::string cause_of_values(const Training& training, const ZeroCase& one, int layer,
                            const OfRanks& left, const HostTensor& expected) {
    const auto flat = [&](const NetworkTensors& network) {
        return flat_layer(network, fmt::format("layer{}", layer), one.elements(layer));
    };
    std::string outside =
        cause_outside(one, layer, left, flat(training.initial()), expected);
    if (!outside.empty()) return outside;
    std::vector<Suspect> suspects;
    for (const auto& wrong : {training.wrong_sums(), training.wrong_steps()})
        for (const auto& [said, network] : wrong)
            suspects.push_back({said, OfRanks(left.size(), flat(network))});
    return suspected(left, suspects, kBound);
}

void judge_case_values(Judge& judge, Stage stage, const ZeroCase& one) {
    const TaskResult& result = run_case(judge, stage, one);
    const Training training(judge, one);
    const NetworkTensors trained = training.trained();
    for (int layer = 0; layer < one.layers; ++layer) {
        const std::string name = fmt::format("layer{}", layer);
        const HostTensor expected = flat_layer(trained, name, one.elements(layer));
        const OfRanks left = left_values(judge, stage, one, result, layer);
        for (std::size_t rank = 0; rank < left.size(); ++rank) {
            const std::string values =
                stage == Stage::three
                    ? fmt::format("{}: the ranges of {} together", one.name(), name)
                    : one.on_rank(rank, "values of " + name);
            try {
                judge.close(values, left[rank], expected, kBound);
            } catch (Judge::No& no) {
                no.explain(cause_of_values(training, one, layer, left, expected));
                throw;
            }
            judge.same(values + " as on rank 0", left[rank], left.front());
        }
    }
}

void judge_values(Judge& judge, Stage stage) {
    for (const ZeroCase& one : zero_cases(judge, stage))
        judge_case_values(judge, stage, one);
}

// A run costs this.

std::string of_stage(Stage stage, const std::string& what) {
    return fmt::format("a8.{}{}", static_cast<int>(stage), what);
}

/// Returns a run whose values are right; else the stage's first criterion has said so.
/// Bytes, time and memory count of no others.
const TaskResult& run_right(Judge& judge, Stage stage, const ZeroCase& one) {
    needs(judge, of_stage(stage, "-values"),
          [&](Judge& asking) { judge_case_values(asking, stage, one); });
    return run_case(judge, stage, one);
}

/// Returns what a rank sends in a run, by verb: it has to send all ranges but one of a
/// layer in each reduce-scatter and each all-gather.
std::map<std::string, std::int64_t> bytes_to_send(Stage stage, const ZeroCase& one) {
    const auto of_layer = [&](int layer) {
        return (one.ranks() - 1) * one.range(layer) * bytes_of(DType::f64);
    };
    std::int64_t once = 0;
    for (int layer = 0; layer < one.layers; ++layer)
        once += of_layer(layer);
    const auto passes = static_cast<std::int64_t>(one.rows.front().size());
    const std::int64_t last = of_layer(one.layers - 1);
    const std::int64_t reduced = stage == Stage::one ? once : passes * once;
    const std::int64_t gathered =
        stage == Stage::three ? passes * (2 * once - last) : once;
    return {{"reduce_scatter", one.steps * reduced},
            {"all_gather", one.steps * gathered}};
}

void judge_sent(Judge& judge, Stage stage, const ZeroCase& one, const RunReport& report) {
    for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
        std::map<std::string, std::int64_t> sent{{"reduce_scatter", 0},
                                                 {"all_gather", 0}};
        for (const Traffic& traffic : report.ranks[rank].traffic)
            sent[traffic.verb] += traffic.bytes_sent;
        const auto asked = bytes_to_send(stage, one);
        for (const auto& [verb, bytes] : sent) {
            const auto to_send = asked.find(verb);
            judge.figure(of_stage(stage, ": " + one.on_rank(rank, "sent by " + verb)),
                         "bytes", to_send == asked.end() ? 0 : to_send->second, bytes);
        }
    }
}

void judge_bytes(Judge& judge, Stage stage) {
    const ZeroCase heavy = heavy_case(judge);
    judge_sent(judge, stage, heavy, run_right(judge, stage, heavy).report);
    // Another criterion says what is wrong with values of several micro-batches.
    for (const ZeroCase& one : zero_cases(judge, stage)) {
        const TaskResult* result = nullptr;
        needs(judge, of_stage(stage, "-values"),
              [&](Judge& asking) { result = &run_case(asking, stage, one); });
        judge_sent(judge, stage, one, result->report);
    }
}

/// Returns what training costs with the library's own strategy of the stage: a layer is a
/// bucket, or a unit.
RunReport cost_of_stage(Stage stage, const ZeroCase& one) {
    return cost_of(static_cast<int>(one.ranks()), [&](Rank& rank) {
        Device& device = rank.device();
        Sequential network;
        for (int layer = 0; layer < one.layers; ++layer) {
            auto& part = network.add<Sequential>();
            part.add<Linear>(
                ParameterInit{device, DType::f64, 0, fmt::format("layer{}", layer),
                              /*allocate=*/false},
                one.in(layer), one.out(layer));
            if (layer + 1 < one.layers) part.add<Tanh>(device);
        }
        const std::int64_t rows = one.rows.front().front();
        const std::vector<MicroBatch> batch{
            {device.zeros({rows, one.features}, DType::f64),
             device.zeros({rows}, DType::i32)}};
        declare_replicas_of(rank.world(), network);
        const std::int64_t bytes = one.elements(0) * bytes_of(DType::f64);
        ZeroOptions options;
        options.sizes = {bytes, bytes};
        std::unique_ptr<GradientSync> sync;
        if (stage == Stage::three)
            sync = std::make_unique<FullySharded>(
                device, rank.world(), network,
                FullyShardedOptions{.by = ShardBy::flat, .reduce_in = {}});
        else if (stage == Stage::two)
            sync = std::make_unique<Zero2>(device, rank.world(), network.parameters(),
                                           options);
        else
            sync = std::make_unique<Zero1>(device, rank.world(), network.parameters(),
                                           options);
        AdamW optimizer(sync->shards(), one.adamw());
        for (int step = 0; step < one.steps; ++step)
            train_step(device, network, cross_entropy_loss, batch, *sync, optimizer);
    });
}

void judge_memory(Judge& judge, Stage stage) {
    const ZeroCase one = heavy_case(judge);
    const TaskResult& result = run_right(judge, stage, one);
    std::int64_t state = 0;
    for (int layer = 0; layer < one.layers; ++layer)
        state += 2 * one.range(layer) * bytes_of(DType::f64);
    const std::int64_t peak = cost_of_stage(stage, one).most_held();
    // In stage 1 sums may lie beside the whole gradients: an n-th more of these.
    const int percent_more = stage == Stage::one ? 15 : 4;
    for (std::size_t rank = 0; rank < one.rows.size(); ++rank) {
        const MemoryReport& memory = result.report.ranks[rank].memory;
        judge.figure(of_stage(stage, ": " + one.on_rank(rank, "optimizer's state")),
                     "bytes of memory", state, memory.peak_of(MemoryCategory::optimizer),
                     {0, 1});
        judge.figure(of_stage(stage, ": " + one.on_rank(rank, "peak")), "bytes of memory",
                     peak, memory.peak, {100, percent_more});
    }
}

/// Judges how long a second step takes, so that what is made before the first is not in
/// it.
void judge_time(Judge& judge, Stage stage) {
    const ZeroCase one = timed_case(judge);
    ZeroCase two = one;
    two.label += ", 2 steps";
    two.steps = 2;
    const Picoseconds first = run_right(judge, stage, one).report.makespan();
    const Picoseconds both = run_right(judge, stage, two).report.makespan();
    // In stage 2 new values may be gathered when all are updated.
    const int percent_more = stage == Stage::two ? 8 : 5;
    judge.figure(
        of_stage(stage, ": " + two.name() + ": time of the second"), kPicoseconds,
        cost_of_stage(stage, two).makespan() - cost_of_stage(stage, one).makespan(),
        both - first, {20, percent_more},
        stage == Stage::two
            ? "a layer's reduce-scatter runs beside the backward of the layer before it: "
              "it is waited for when that is done"
            : "a layer's values are gathered while the layer before it computes, in "
              "forward and in backward: each is launched one layer ahead");
}

Criterion criterion(const std::string& id, const std::string& title, int points,
                    const char* step, Stage stage, void (*judge)(Judge&, Stage)) {
    return {id, title, points, lesson_step("zero", step),
            [=](Judge& asking) { judge(asking, stage); }};
}

std::vector<Criterion> zero_criteria() {
    return {
        criterion("a8.1-values", "stage 1 ends with one device's values on every rank",
                  15, "stage_1", Stage::one, judge_values),
        criterion("a8.1-bytes", "stage 1 sends a reduce-scatter and an all-gather a step",
                  8, "stage_1", Stage::one, judge_bytes),
        criterion("a8.1-memory", "stage 1 holds an n-th of the optimizer's state", 11,
                  "stage_1", Stage::one, judge_memory),
        criterion("a8.2-values", "stage 2 ends with one device's values on every rank",
                  10, "stage_2", Stage::two, judge_values),
        criterion("a8.2-bytes",
                  "stage 2 sends a reduce-scatter a micro-batch and an all-gather a step",
                  5, "stage_2", Stage::two, judge_bytes),
        criterion("a8.2-memory",
                  "stage 2 holds the gradients of its ranges and two layers", 8,
                  "stage_2", Stage::two, judge_memory),
        criterion("a8.2-time", "stage 2's reductions run beside backward", 10, "stage_2",
                  Stage::two, judge_time),
        criterion("a8.3-values", "stage 3 ends with one device's values, in ranges", 10,
                  "stage_3", Stage::three, judge_values),
        criterion("a8.3-bytes",
                  "stage 3 gathers twice and reduces once a micro-batch, less the last "
                  "layer's second gather",
                  5, "stage_3", Stage::three, judge_bytes),
        criterion("a8.3-memory",
                  "stage 3 holds its ranges, and values and gradients of two layers", 8,
                  "stage_3", Stage::three, judge_memory),
        criterion("a8.3-time", "stage 3 gathers values in time", 10, "prefetch",
                  Stage::three, judge_time)};
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

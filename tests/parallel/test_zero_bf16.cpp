// Training in bf16 with f32 masters that are sharded in all ways. Sums stay within their
// bounds, moving data changes no bit, and losses follow those of one device.

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <type_traits>

#include <fmt/format.h>

#include "src/comm/mesh.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/parallel/zero_2.hpp"
#include "src/parallel/zero_offload.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/data_parallel_task.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

namespace {

constexpr BucketSizes kSmall{100, 100};
constexpr double kHalfStep = Bf16::kEpsilon / 2;  // 2^-8, the error of a rounding
constexpr double kHalfStepF32 = 0x1p-24;

struct Form {
    std::string name;
    std::function<std::unique_ptr<GradientSync>(Rank&, Communicator&, Sequential&)> make;
    /// True if a rank first adds the micro-batches' gradients in bf16, and sums over
    /// ranks after that.
    bool adds_at_home = false;
};

template <typename Stage>
Form stage(const std::string& name, const ZeroOptions& options) {
    return {name,
            [=](Rank& rank, Communicator& line, Sequential& model) {
                return std::make_unique<Stage>(rank.device(), line, model.parameters(),
                                               options);
            },
            std::is_same_v<Stage, Zero1>};
}

Form sharded(const std::string& name, const FullyShardedOptions& options) {
    return {name, [=](Rank& rank, Communicator& line, Sequential& model) {
                return std::make_unique<FullySharded>(rank.device(), line, model,
                                                      options);
            }};
}

using ReduceIn = std::optional<DType>;

/// Forms of the same group differ only in how they move data. On the same ranks they add
/// the same terms in the same order.
std::vector<std::vector<Form>> forms(ReduceIn in) {
    return {
        {stage<Zero1>("stage 1", {.sizes = kSmall, .reduce_in = in}),
         stage<Zero1>("stage 1, hidden",
                      {.sizes = kSmall, .hide_gather = true, .reduce_in = in})},
        {stage<Zero2>("stage 2", {.sizes = kSmall, .reduce_in = in}),
         stage<Zero2>("stage 2, hidden",
                      {.sizes = kSmall, .hide_gather = true, .reduce_in = in}),
         stage<ZeroOffload>("offload", {.sizes = kSmall, .reduce_in = in})},
        {sharded("by rows", {.reduce_in = in}),
         sharded("by rows, kept", {.reshard_after_forward = false, .reduce_in = in}),
         sharded("by rows, not prefetched", {.prefetch = 0, .reduce_in = in}),
         sharded("by rows, on the host", {.reduce_in = in, .on_host = true}),
         sharded("by packed rows", {.shard_by = ShardBy::packed_rows, .reduce_in = in})},
        {sharded("flat", {.shard_by = ShardBy::flat, .reduce_in = in}),
         sharded("flat, on the host",
                 {.shard_by = ShardBy::flat, .reduce_in = in, .on_host = true})},
    };
}

std::vector<Form> all_forms(ReduceIn in) {
    std::vector<Form> all;
    for (const auto& group : forms(in))
        all.insert(all.end(), group.begin(), group.end());
    return all;
}

bool is_on_host(const Form& form) {
    return form.name == "offload" || form.name.find("host") != std::string::npos;
}

/// n ranks on each node. Nodes are replicas of each other.
struct Layout {
    int nodes = 1;
    int n = 1;
    int micro_batches = 1;
    int ranks() const { return nodes * n; }
};

using BatchesOf = std::function<std::vector<MicroBatch>(Device&, int step, int rank)>;

/// Trains for some steps.
Outcome train(const Layout& layout, const Form& form, const RowTask& task, int steps,
              const BatchesOf& batches_of) {
    sim::ClusterOptions options;
    options.ranks = layout.ranks();
    return outcome_of(*sim::make_cluster(options), [&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"between", layout.nodes}, {"inside", layout.n}});
        const auto made = task.make_model({device, DType::bf16, 1, ""});
        auto& model = dynamic_cast<Sequential&>(*made);
        for (const char* axis : {"between", "inside"})
            declare_replicas_of(mesh[axis], model);
        const auto sync = form.make(rank, mesh["inside"], model);
        const auto optimizer = adamw(sync->shards());
        for (int step = 0; step < steps; ++step) {
            const auto mine = batches_of(device, step, rank.index());
            const Tensor loss =
                train_step(device, model, task.loss, mine, *sync, *optimizer);
            keep_loss(rank, loss);
        }
        sync->wait_for_values();
        keep_updated(rank, sync->shards());
    });
}

// Sums of known gradients.

constexpr std::int64_t kIn = 7;
constexpr std::int64_t kOut = 5;

/// A loss whose gradient is the target.
LossResult given_gradient(Device& device, const Tensor& prediction, const Tensor& target,
                          double /*weight*/, SourceLine /*at*/) {
    return {device.zeros({1}, DType::f32), target.reshaped(prediction.shape())};
}

RowTask linear_task() {
    return {[](const ParameterInit& init) {
                auto model = std::make_unique<Sequential>();
                model->add<Linear>(init, kIn, kOut);
                return model;
            },
            given_gradient,
            {}};
}

HostTensor magnitudes(std::int64_t columns, const std::string& name, double scale) {
    HostTensor values = normal_values({1, columns}, name);
    for (std::int64_t i = 0; i < columns; ++i)
        values.set(i, scale * (1 + std::abs(values.at(i))));
    return values.as(DType::bf16);
}

HostTensor input_of(int batch) {
    return magnitudes(kIn, fmt::format("x {}", batch), 1);
}
HostTensor gradient_of(int batch, double scale) {
    return magnitudes(kOut, fmt::format("dy {}", batch), scale);
}

/// Returns the weight's gradient after one step. Each micro-batch has one row.
HostTensor summed(const Layout& layout, const Form& form, double scale = 1) {
    const auto batches_of = [&](Device& device, int /*step*/, int rank) {
        std::vector<MicroBatch> batches;
        for (int i = 0; i < layout.micro_batches; ++i) {
            const int batch = rank * layout.micro_batches + i;
            batches.push_back({device.upload(input_of(batch)),
                               device.upload(gradient_of(batch, scale)), 1});
        }
        return batches;
    };
    return train(layout, form, linear_task(), 1, batches_of).results.at("grad/weight");
}

/// Returns the largest error of a sum over all terms, relative to the exact sum.
double off_of(const HostTensor& arrived, int batches) {
    double most = 0;
    for (std::int64_t out = 0; out < kOut; ++out)
        for (std::int64_t in = 0; in < kIn; ++in) {
            double sum = 0;
            for (int batch = 0; batch < batches; ++batch)
                sum += gradient_of(batch, 1).at(out) * input_of(batch).at(in);
            most = std::max(most, std::abs(arrived.at(out * kIn + in) - sum) / sum);
        }
    return most;
}

/// Returns how far a sum of positive terms may move if each term is rounded this often.
double bound_of(int roundings, int roundings_f32) {
    return std::pow(1 + kHalfStep, roundings) *
               std::pow(1 + kHalfStepF32, roundings_f32) -
           1;
}

}  // namespace

TEST_CASE("Gradients in bf16 differ by one rounding per rank and micro-batch",
          "[parallel][zero][bf16]") {
    const int nodes = GENERATE(1, 2), n = GENERATE(1, 2, 3, 4, 8), k = GENERATE(1, 3);
    const ReduceIn in = GENERATE(ReduceIn(), ReduceIn(DType::f32));
    const Layout layout{nodes, n, k};
    const int ranks = layout.ranks();
    for (const Form& form : all_forms(in)) {
        if (nodes > 1 && is_on_host(form)) continue;  // the form refuses it
        CAPTURE(nodes, n, k, form.name, in.has_value());
        // Each product, and each sum except the first, is rounded. If sums are f32, only
        // a rank's own sums, or the result, are rounded to bf16.
        const int bf16 = in ? (form.adds_at_home ? k : 1) : ranks + k - 1;
        const double off = off_of(summed(layout, form), ranks * k);
        CHECK(off <= bound_of(bf16, ranks + k));
        // The roundings add up: 16 ranks exceed the bound of one rounding.
        if (ranks == 16 && !in) CHECK(off > bound_of(1, ranks + k));
    }
}

TEST_CASE("Gradients of 2^-30 in bf16 lose nothing, so the loss needs no scaling",
          "[parallel][zero][bf16]") {
    // Near zero, f16 has steps of 2^-24, so half a step or less becomes zero. To keep
    // such values, a loss is scaled (Micikevicius et al. 2018, 1710.03740, section 3.2).
    constexpr double kScale = 0x1p-30, kStepF16 = 0x1p-24;
    const Layout layout{1, 4, 3};
    const ReduceIn in = GENERATE(ReduceIn(), ReduceIn(DType::f32));
    for (const Form& form : all_forms(in)) {
        CAPTURE(form.name, in.has_value());
        const HostTensor usual = summed(layout, form);
        const HostTensor small = summed(layout, form, kScale);
        for (std::int64_t i = 0; i < usual.elements(); ++i)
            CHECK(small.at(i) == kScale * usual.at(i));
    }
    for (int batch = 0; batch < layout.ranks() * layout.micro_batches; ++batch)
        for (std::int64_t i = 0; i < kOut; ++i)
            CHECK(std::nearbyint(gradient_of(batch, kScale).at(i) / kStepF16) == 0);
}

namespace {

// Twenty steps of a small GPT.

constexpr int kSteps = 20;

Outcome train(const Layout& layout, const Form& form, const RowTask& task,
              int steps = kSteps) {
    return train(layout, form, task, steps, [&](Device& device, int step, int rank) {
        return batches_of_worker(device, task, step, rank, layout.ranks(),
                                 layout.micro_batches);
    });
}

/// Trains one device on the whole batch of `ranks` ranks.
Outcome train_whole(int ranks, const RowTask& task) {
    const Form alone{"alone", [](Rank&, Communicator&, Sequential& model) {
                         return std::make_unique<AllReduceSync>(model.parameters());
                     }};
    const int all = rows_of_all(ranks);
    return train({}, alone, task, kSteps, [&](Device& device, int step, int /*rank*/) {
        const auto [input, target] = task.rows(step, all, 0, all);
        return std::vector<MicroBatch>{{device.upload(input), device.upload(target)}};
    });
}

}  // namespace

TEST_CASE("Sharded training in bf16 follows one device's",
          "[parallel][zero][bf16][slow]") {
    const RowTask task = gpt_task();
    const Layout layout = GENERATE(Layout{1, 1}, Layout{1, 2}, Layout{1, 3}, Layout{1, 4},
                                   Layout{1, 8}, Layout{2, 3});
    const Outcome one = train_whole(layout.ranks(), task);
    const std::vector<double> losses = losses_of(one.report);
    CHECK(losses.back() < 0.9 * losses.front());
    for (const int k : {1, 3})
        for (const ReduceIn in : {ReduceIn(), ReduceIn(DType::f32)})
            for (const auto& group : forms(in)) {
                const Form& form = group.front();
                CAPTURE(layout.nodes, layout.n, k, form.name, in.has_value());
                const auto many =
                    losses_of(train({layout.nodes, layout.n, k}, form, task).report);
                // Both losses may differ from the loss in f32, by one rounding each.
                for (int step = 0; step < kSteps; ++step)
                    CHECK(std::abs(many[step] - losses[step]) <=
                          2 * kHalfStep * losses[0]);
            }
}

TEST_CASE("Other ways to move data change no bits", "[parallel][zero][bf16]") {
    constexpr int kFew = 3;
    const RowTask task = gpt_task();
    Layout layout =
        GENERATE(Layout{1, 2}, Layout{1, 3}, Layout{1, 8}, Layout{2, 1}, Layout{2, 3});
    const int k = layout.micro_batches = GENERATE(1, 3);
    for (const ReduceIn in : {ReduceIn(), ReduceIn(DType::f32)}) {
        Outcome others;
        for (const auto& group : forms(in)) {
            const Outcome first = train(layout, group.front(), task, kFew);
            const auto check = [&](const Outcome& course, const std::string& name) {
                CAPTURE(layout.nodes, layout.n, k, name, in.has_value());
                CHECK(course.results == first.results);
            };
            for (const Form& form : group)
                if (layout.nodes == 1 || !is_on_host(form))
                    check(train(layout, form, task, kFew), form.name);
            // A sum of two terms has the same bits at any place in a buffer. So stages
            // and full sharding also agree.
            if (layout.ranks() <= 2 && k == 1 && !others.results.empty())
                check(others, "another group");
            others = first;
        }
    }
    // With the same buckets and one micro-batch, stage 2 sends the same sums as stage 1.
    if (k == 1) {
        const auto stages = forms({});
        CHECK(named_under(train(layout, stages[0][0], task, kFew).results, "value/") ==
              named_under(train(layout, stages[1][0], task, kFew).results, "value/"));
    }
}

}  // namespace lockstep::test

// Training in bf16, with and without masters in f32.

#include <cmath>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/train_step.hpp"
#include "src/parallel/zero_1.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kLength = 16;
constexpr std::int64_t kBatch = 8;
constexpr int kSteps = 60;

GptSizes small_gpt() {
    return {17, kLength, 2, {32, 4}};
}

/// A sequence in which, with some exceptions, each token follows from the token before.
MicroBatch batch_of(Device& device, int step, double weight) {
    HostTensor ids({kLength, kBatch}, DType::i32), next({kLength, kBatch}, DType::i32);
    for (std::int64_t b = 0; b < kBatch; ++b) {
        std::int64_t token = (std::int64_t{7} * step + 3 * b) % 17;
        for (std::int64_t i = 0; i < kLength; ++i) {
            ids.set(i * kBatch + b, static_cast<double>(token));
            token = (3 * token + 5 + (i % 5 == 4 ? b : 0)) % 17;
            next.set(i * kBatch + b, static_cast<double>(token));
        }
    }
    return {device.upload(ids), device.upload(next), weight};
}

enum class Way { f32, masters, no_masters };

std::unique_ptr<Optimizer> optimizer_of(std::vector<Parameter*> parameters, Way way) {
    const AdamWOptions options{.learning_rate = 1e-4, .weight_decay = 0.01};
    if (way == Way::masters) return make_optimizer<AdamW>(std::move(parameters), options);
    return std::make_unique<AdamW>(std::move(parameters), options);
}

RunReport train(Way way, int ranks = 1, bool shards = false) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.workers = 1;
    options.check = sim::check_level_asked();
    return sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const DType dtype = way == Way::f32 ? DType::f32 : DType::bf16;
        const auto gpt = make_gpt({device, dtype, 1, ""}, small_gpt());
        declare_replicas_of(rank.world(), *gpt);
        std::unique_ptr<GradientSync> sync;
        auto updated = gpt->parameters();
        if (shards) {
            auto zero = std::make_unique<Zero1>(device, rank.world(), updated);
            updated = zero->shards();
            sync = std::move(zero);
        } else {
            sync = std::make_unique<AllReduceSync>(updated);
        }
        const auto optimizer = optimizer_of(updated, way);
        for (int step = 0; step < kSteps; ++step) {
            const MicroBatch batch =
                batch_of(device, ranks * step + rank.index(), 1.0 / ranks);
            const Tensor loss = train_step(device, *gpt, cross_entropy_loss, {&batch, 1},
                                           *sync, *optimizer);
            REQUIRE(loss.dtype() == DType::f32);
            rank.keep_value("loss", device.peek(loss).at(0));
        }
        for (const Optimizer::State& state : optimizer->state())
            rank.keep(state.name, state.tensor, state.parameter->part());
    });
}

/// Returns the mean loss of the last steps.
double last_of(const RunReport& report) {
    const auto& losses = report.ranks[0].series.at("loss");
    double sum = 0;
    for (int step = kSteps - 10; step < kSteps; ++step)
        sum += losses[step];
    return sum / 10;
}

}  // namespace

TEST_CASE("With masters bf16 follows f32; without, updates are lost", "[nn][bf16]") {
    const RunReport wide = train(Way::f32), masters = train(Way::masters);
    const RunReport lost = train(Way::no_masters);
    const auto& one = wide.ranks[0].series.at("loss");
    const auto& other = masters.ranks[0].series.at("loss");
    // About ten layers, one after another, each have a rounding error of 2^-8.
    for (int step = 0; step < kSteps; ++step) {
        CAPTURE(step);
        CHECK(std::abs(other[step] - one[step]) <= 10 * Bf16::kEpsilon / 2 * one[0]);
    }
    CAPTURE(last_of(wide), last_of(masters), last_of(lost), one[0]);
    const auto learnt = [&](const RunReport& report) { return one[0] - last_of(report); };
    CHECK(learnt(masters) >= 0.95 * learnt(wide));
    CHECK(learnt(lost) <= 0.5 * learnt(wide));
}

TEST_CASE("bf16 with masters takes 16 bytes a parameter", "[nn][bf16]") {
    constexpr std::int64_t kElements = 1000;
    const RunReport report = sim::make_cluster(1)->run([](Rank& rank) {
        const ParameterInit init{rank.device(), DType::bf16, 1, ""};
        Parameter matrix(init, "matrix", {30, 30}), row(init, "row", {100});
        for (const Parameter* parameter : {&matrix, &row})
            rank.device().fill(parameter->value, 1);
        const auto optimizer = optimizer_of({&matrix, &row}, Way::masters);
        CHECK(optimizer->state().front().name == "master/matrix");
        optimizer->step();
    });
    // The bytes in the ledger, to which a step adds nothing.
    const MemoryReport& memory = report.ranks[0].memory;
    CHECK(memory.peak_of(MemoryCategory::parameters) == 2 * kElements);
    CHECK(memory.peak_of(MemoryCategory::gradients) == 2 * kElements);
    CHECK(memory.peak_of(MemoryCategory::optimizer) == 12 * kElements);
    CHECK(memory.peak == 16 * kElements);
}

TEST_CASE("Masters step by the parameter's gradient at that time", "[nn][bf16]") {
    const RunReport report = sim::make_cluster(1)->run([](Rank& rank) {
        Device& device = rank.device();
        Parameter w("w", device.zeros({4}, DType::bf16), Tensor());
        const auto make = [&](double value) {
            const MemoryScope scope(device, MemoryCategory::gradients);
            w.gradient = device.empty({4}, DType::bf16);
            device.fill(w.gradient, value);
        };
        // First the gradient is made for each step and released after the step.
        const auto optimizer = make_optimizer<Sgd>({&w}, SgdOptions{1, 0, 0});
        for (const double value : {1.0, 2.0}) {
            make(value);
            optimizer->step();
            w.gradient = Tensor();
        }
        CHECK(device.peek(w.value).at(0) == -3);
        CHECK_THROWS_AS(optimizer->step(), UsageError);
        make(0);
        // Then the gradient exists when the optimizer is made.
        const auto other = make_optimizer<Sgd>({&w}, SgdOptions{1, 0, 0});
        w.gradient = Tensor();
        make(4);
        other->step();
        CHECK(device.peek(w.value).at(0) == -7);
    });
    CHECK(report.ranks[0].memory.peak_of(MemoryCategory::gradients) == 8);
}

TEST_CASE("Only parameters in bf16 have masters, at any place in the list",
          "[nn][bf16]") {
    sim::make_cluster(1)->run([](Rank& rank) {
        Device& device = rank.device();
        const auto make = [&](const char* name, DType dtype) {
            const Tensor gradient = device.empty({4}, dtype);
            device.fill(gradient, 1e-4);
            const Tensor value = device.empty({4}, dtype);
            device.fill(value, 1);
            return std::make_unique<Parameter>(name, value, gradient);
        };
        const auto wide = make("wide", DType::f32), narrow = make("narrow", DType::bf16);
        for (const bool wide_first : {true, false}) {
            const std::vector<Parameter*> both = {wide_first ? wide.get() : narrow.get(),
                                                  wide_first ? narrow.get() : wide.get()};
            const auto optimizer = make_optimizer<AdamW>(both, AdamWOptions{});
            REQUIRE(optimizer->state().size() == 5);
            CHECK(optimizer->state().front().name == "master/narrow");
            for (const Optimizer::State& state : optimizer->state())
                CHECK(state.tensor.dtype() == DType::f32);
            const float before = static_cast<float>(device.peek(wide->value).at(0));
            optimizer->step();
            CHECK(device.peek(wide->value).at(0) < before);
        }
    });
}

TEST_CASE("Masters of shards are shards of masters", "[nn][bf16]") {
    const RunReport whole = train(Way::masters, 2), shards = train(Way::masters, 2, true);
    CHECK(whole.ranks[0].series.at("loss") == shards.ranks[0].series.at("loss"));
    for (const auto& kept : whole.ranks[0].kept) {
        CAPTURE(kept.first);
        CHECK(shards.whole(kept.first) == kept.second);
    }
}

}  // namespace lockstep::test

// Training in bf16, with and without masters in f32.

#include <cmath>

#include "sim/cluster.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/train_step.hpp"
#include "src/parallel/zero1.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kLength = 16;
constexpr std::int64_t kBatch = 8;
constexpr int kSteps = 60;

GptSizes small_gpt() {
    return {17, kLength, 2, {32, 4}};
}

/// A sequence whose next token follows from the one before, with some exceptions.
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

std::unique_ptr<Optimizer> make_optimizer(std::vector<Parameter*> parameters, Way way) {
    const AdamWOptions options{.learning_rate = 1e-4, .weight_decay = 0.01};
    if (way != Way::masters)
        return std::make_unique<AdamW>(std::move(parameters), options);
    return std::make_unique<MasterWeights>(
        std::move(parameters), [&](std::vector<Parameter*> masters) {
            return std::make_unique<AdamW>(std::move(masters), options);
        });
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
        const auto optimizer = make_optimizer(updated, way);
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

/// The mean loss of the last steps.
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
    // Rounding of 2^-8 in each of some ten layers one behind the other.
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
    sim::make_cluster(1)->run([](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, DType::bf16, 1, ""}, small_gpt());
        const auto optimizer = make_optimizer(gpt->parameters(), Way::masters);
        std::int64_t elements = 0, bytes = 0;
        for (const Parameter* parameter : gpt->parameters()) {
            elements += parameter->shape().elements();
            bytes += parameter->value.bytes() + parameter->gradient.bytes();
        }
        CHECK(bytes == 4 * elements);
        for (const Optimizer::State& state : optimizer->state())
            bytes += state.tensor.bytes();
        CHECK(bytes == 16 * elements);
        const Tensor batch = device.zeros({1}, DType::i32);
        CHECK(optimizer->state().front().name == "master/transformer.wte.weight");
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

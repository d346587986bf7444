// Attention whose tokens ranks share out, against attention on one device.

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/parallel/ulysses_attention.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/twin.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::int64_t kHeads = 12;
constexpr std::int64_t kWidth = 2;
constexpr std::int64_t kTokens = 24;
constexpr std::int64_t kBatch = 3;

Inputs inputs(DType dtype) {
    Inputs given;
    given.x = normal_values({kTokens, kBatch, 3 * kHeads * kWidth}, "x").as(dtype);
    given.dy = normal_values({kTokens, kBatch, kHeads * kWidth}, "dy").as(dtype);
    given.x_held = Held::sequence;
    given.y_held = Held::sequence;
    return given;
}

MakeAlone alone(bool causal) {
    return [causal](const ParameterInit& init) {
        return std::make_unique<CoreAttention>(init.device, kHeads, causal);
    };
}

MakeShared shared(bool causal) {
    return [causal](const ParameterInit& init, TensorParallel& tp) {
        return std::make_unique<UlyssesAttention>(init.device, tp.group(), kHeads,
                                                  causal);
    };
}

}  // namespace

TEST_CASE("Ulysses attention is attention on one device", "[parallel][sim]") {
    for (const bool causal : {false, true})
        for (const int ranks : {1, 2, 3, 4, 6}) {
            CAPTURE(ranks, causal);
            for (const DType dtype : {DType::f64, DType::f32}) {
                const Inputs given = inputs(dtype);
                const Difference apart =
                    difference(run_shared(ranks, dtype, regions(Regions::replicated),
                                          shared(causal), given),
                               run_alone(dtype, alone(causal), given));
                CAPTURE(apart.name);
                CHECK(apart.relative <= (dtype == DType::f64 ? 1e-12 : 1e-5));
            }
        }
}

TEST_CASE("Ulysses attention sends what its formula says", "[parallel][sim]") {
    for (const int ranks : {2, 3, 4}) {
        const RunReport report = classroom(ranks)->run([&](Rank& rank) {
            Device& device = rank.device();
            UlyssesAttention attention(device, rank.world(), kHeads, true);
            Saved saved;
            const std::int64_t tokens = kTokens / ranks;
            attention.forward(
                device.zeros({tokens, kBatch, 3 * kHeads * kWidth}, DType::f32), saved);
            attention.backward(
                device.zeros({tokens, kBatch, kHeads * kWidth}, DType::f32), saved);
        });
        const std::int64_t own = kTokens / ranks * kBatch * kHeads * kWidth;
        for (const RankReport& rank : report.ranks)
            CHECK(rank.bytes_sent() == 2 * 4 * own * (ranks - 1) / ranks * 4);
    }
}

TEST_CASE("heads that ranks cannot share out are refused", "[parallel][errors]") {
    const auto make = [](Rank& rank) {
        UlyssesAttention(rank.device(), rank.world(), kHeads, false);
    };
    CHECK_THROWS_WITH(classroom(5)->run(make),
                      "Ulysses attention of 12 heads over 5 ranks, which share the heads "
                      "out: a multiple of 5 is expected");
}

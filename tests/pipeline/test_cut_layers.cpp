#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/pipeline_gpt.hpp"
#include "tests/catch.hpp"

using namespace lockstep;

namespace {

using Costs = std::vector<std::int64_t>;

std::int64_t dearest(const Costs& costs, const std::vector<LayerRange>& cut) {
    std::int64_t most = 0;
    for (const LayerRange& range : cut)
        most =
            std::max(most, std::accumulate(costs.begin() + range.first,
                                           costs.begin() + range.last, std::int64_t{0}));
    return most;
}

/// Tries every cut into `parts` parts. Returns the least cost that the most expensive
/// part can have.
std::int64_t least(const Costs& costs, std::size_t from, int parts) {
    std::int64_t sum = 0;
    if (parts == 1)
        return std::accumulate(costs.begin() + static_cast<std::ptrdiff_t>(from),
                               costs.end(), sum);
    std::int64_t best = std::numeric_limits<std::int64_t>::max();
    for (std::size_t i = from; i + static_cast<std::size_t>(parts) <= costs.size(); ++i) {
        sum += costs[i];
        best = std::min(best, std::max(sum, least(costs, i + 1, parts - 1)));
    }
    return best;
}

}  // namespace

TEST_CASE("layers are cut so that the most expensive part is as cheap as possible",
          "[pipeline]") {
    std::mt19937 random(3);
    for (int i = 0; i < 300; ++i) {
        Costs costs(1 + random() % 9);
        for (std::int64_t& cost : costs)
            cost = static_cast<std::int64_t>(random() % 6);
        const int parts = 1 + static_cast<int>(random() % costs.size());
        const std::vector<LayerRange> cut = cut_layers(costs, parts);
        REQUIRE(cut.size() == static_cast<std::size_t>(parts));
        int next = 0;
        for (const LayerRange& range : cut) {
            REQUIRE(range.first == next);
            REQUIRE(range.last > range.first);
            next = range.last;
        }
        REQUIRE(next == static_cast<int>(costs.size()));
        CHECK(dearest(costs, cut) == least(costs, 0, parts));
    }
}

TEST_CASE("the most even cut with the cheapest maximum is taken", "[pipeline]") {
    CHECK(cut_layers({9, 1, 1, 1, 1}, 3) ==
          std::vector<LayerRange>{{0, 1}, {1, 3}, {3, 5}});
}

TEST_CASE("layers that cannot be cut are refused with a message", "[pipeline][errors]") {
    CHECK_THROWS_WITH(cut_layers({1, 2}, 3),
                      "2 layers cannot be cut into 3 parts; each part needs one");
    CHECK_THROWS_WITH(cut_layers({1, 2}, 0),
                      "2 layers cannot be cut into 0 parts; each part needs one");
    CHECK_THROWS_WITH(cut_layers({1, -2}, 1),
                      "a layer costs -2; none may cost less than 0");
}

TEST_CASE("a GPT's layers cost the flops of their matrix products", "[pipeline]") {
    GptSizes sizes;
    sizes.vocabulary = 50;
    sizes.context = 16;
    sizes.layers = 2;
    sizes.block.hidden = 32;
    sizes.block.heads = 4;
    sizes.block.norm = NormKind::rms_norm;
    std::vector<GptSizes> all(5, sizes);
    all[1].block.mlp = MlpKind::swiglu;
    all[2].block.experts.count = 6;
    all[2].block.experts.inner = 24;
    all[2].dense_blocks = 1;
    all[3] = all[2];
    all[3].block.mlp = MlpKind::swiglu;
    all[3].block.experts.shared = 40;
    all[4].block.latent = {12, 8, 8, 4, 6};
    all[4].block.rotary_base = 100;
    for (const GptSizes& own : all) {
        sizes = own;
        const Costs costs = gpt_layer_flops(sizes, 16, 3);
        for (int layer = sizes.first_block(); layer < sizes.layer_count(); ++layer) {
            const RunReport report = sim::make_cluster(1)->run([&](Rank& rank) {
                Device& device = rank.device();
                const auto module =
                    make_gpt_layers({device, DType::f32, 1, ""}, sizes, layer, layer + 1);
                Saved saved;
                module->forward(device.zeros({16, 3, 32}, DType::f32), saved);
            });
            // All other operations need few flops for each element.
            const std::int64_t counted = report.ranks[0].flops;
            const std::int64_t cost = costs[static_cast<std::size_t>(layer)];
            CAPTURE(layer, counted, cost);
            CHECK(counted >= cost);
            CHECK(counted - cost <= 30 * 16 * 3 * 32 * 8);
        }
    }
}

#include <array>
#include <cmath>
#include <vector>

#include "src/nn/published_sizes.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"

namespace lockstep::test {

namespace {

/// A chip of 197 TFLOP/s and 820 GB/s, with free links and free launches.
ClusterSpec v5e() {
    ClusterSpec spec;
    spec.name = "v5e";
    spec.flops_bf16 = 197e12;
    spec.memory_bytes_per_second = 820e9;
    return spec;
}

/// Returns the time of a pass on 8 chips that shard heads and columns. The pass decodes
/// one token for each of `batch` sequences. The earlier tokens are already in the cache.
double decode_seconds(const GptSizes& sizes, std::int64_t batch, std::int64_t tokens) {
    constexpr std::int64_t kRows = 16;
    sim::ClusterOptions options;
    options.ranks = 8;
    options.spec = v5e();
    options.numbers = false;
    Picoseconds begun = 0;
    const RunReport report = sim::make_cluster(std::move(options))->run([&](Rank& rank) {
        TensorParallel tp(rank.device(), rank.world());
        const std::int64_t of_each = (tokens + kRows - 1) / kRows;
        KeyValueCache cache(rank.device(), DType::bf16,
                            {.pages = batch * of_each, .page_rows = kRows});
        const auto gpt = make_gpt({rank.device(), DType::bf16, 7, ""}, sizes,
                                  with_cache(tensor_parallel({}, tp), cache));
        begun = rank.device().monitor().moment().time;
        gpt->infer(cache.begin(equal_pass(batch, tokens - 1, 1, kRows)));
    });
    return static_cast<double>(report.makespan() - begun) / static_cast<double>(kSecond);
}

/// Returns the time of a decode's messages in one layer of DeepSeek-V3. The ranks shard
/// the experts. Each rank has `tokens` tokens. Only messages take time.
Picoseconds exchange_time(int ranks, double bytes_per_second, std::int64_t tokens) {
    const auto makespan = [&](std::int64_t layers) {
        GptSizes sizes = deepseek_v3(64);
        sizes.layers = layers;
        sizes.dense_blocks = 0;
        sim::ClusterOptions options;
        options.ranks = ranks;
        options.spec.devices_per_node = 1;
        options.spec.between.bytes_per_second = bytes_per_second;
        options.numbers = false;
        const RunReport report =
            sim::make_cluster(std::move(options))->run([&](Rank& rank) {
                Mesh mesh(rank.world(), {{"ep", ranks}});
                KeyValueCache cache(rank.device(), DType::bf16, {.pages = tokens});
                const auto gpt =
                    make_gpt({rank.device(), DType::bf16, 7, ""}, sizes,
                             with_cache(expert_parallel({}, mesh, {"ep"}), cache));
                gpt->infer(cache.begin(equal_pass(tokens, 3, 1, 16)));
            });
        return report.makespan();
    };
    return makespan(2) - makespan(1);
}

}  // namespace

TEST_CASE("The time to send a token to its experts bounds the speed of decoding",
          "[inference][sim]") {
    // DeepSeek-AI 2025, 2505.09343, section 2.3.2: each device sends each of 32 tokens to
    // 9 experts. A token has 7,000 numbers, of one byte on the way there and two on the
    // way back. Two batches take turns.
    constexpr std::int64_t kTokens = 32;
    const auto published = [](double bytes_per_second) {
        return (1 + 2) * 32.0 * 9 * 7000 / bytes_per_second;
    };
    CHECK_THAT(published(50e9) * 1e6, Catch::Matchers::WithinAbs(120.96, 0.005));
    CHECK_THAT(2 * 61 * published(50e9) * 1e3, Catch::Matchers::WithinAbs(14.76, 0.005));
    CHECK_THAT(2 * 61 * published(900e9) * 1e3, Catch::Matchers::WithinAbs(0.82, 0.005));
    for (const double bytes_per_second : {50e9, 900e9}) {
        const int ranks = 32;
        CAPTURE(bytes_per_second);
        const double took =
            static_cast<double>(exchange_time(ranks, bytes_per_second, kTokens)) / 1e12;
        // Here numbers have two bytes in both directions. A token has 7,168 numbers. It
        // is sent to 8 experts, since the shared expert is on its own rank. One copy in
        // 32 stays on its rank, too. Ranks also exchange counts (4 bytes for each of 8
        // experts).
        const double factor = 4.0 / 3 * 8 / 9 * 7168 / 7000 * (ranks - 1) / ranks;
        const double counts = 4.0 * 8 * (ranks - 1) / bytes_per_second;
        CHECK_THAT(took, Catch::Matchers::WithinRel(
                             published(bytes_per_second) * factor + counts, 1e-6));
    }
}

TEST_CASE("A decode takes the time to read its weights and its cache",
          "[inference][sim]") {
    // Austin et al. 2025, How to Scale Your Model, "All About Transformer Inference":
    // LLaMA-2 13B decodes after 8,192 tokens; times are in ms. First with all heads of
    // keys, then with a fifth of them and the same number of parameters.
    constexpr std::array<std::int64_t, 6> kBatches{1, 8, 16, 32, 64, 240};
    constexpr std::array<double, 6> kAllHeads{4.98, 12.13, 20.30, 36.65, 69.33, 249.09};
    constexpr std::array<double, 6> kAFifth{4.17, 5.60, 7.23, 10.50, 17.04, 52.99};
    constexpr std::int64_t kTokens = 8192;
    for (const bool fifth : {false, true}) {
        GptSizes sizes = llama2_13b(kTokens);
        if (fifth) {
            sizes.block.kv_heads = 8;
            sizes.block.inner += 2736;  // instead of the removed keys and values
        }
        CHECK(std::abs(static_cast<double>(sizes.parameters()) / 13.016e9 - 1) < 0.001);
        // A decode must read at least the cache and all weights except the table of
        // tokens. From the table it reads only one row for each sequence.
        const std::int64_t weights =
            2 * (sizes.parameters() - sizes.vocabulary * sizes.block.hidden);
        std::vector<double> rest;
        for (std::size_t i = 0; i < kBatches.size(); ++i) {
            CAPTURE(fifth, kBatches[i]);
            const double took = decode_seconds(sizes, kBatches[i], kTokens);
            const std::int64_t cache =
                kBatches[i] * kTokens * cache_bytes_of_token(sizes, DType::bf16);
            const double least = static_cast<double>(weights + cache) / (8 * 820e9);
            // The published times include reading all 13 billion weights, but no
            // activations.
            const double published = (fifth ? kAFifth : kAllHeads).at(i) * 1e-3;
            CHECK(std::abs(took / published - 1) < (kBatches[i] <= 32 ? 0.025 : 0.042));
            rest.push_back((took - least) * 820e9);
        }
        // The rest of the time is for other bytes: all 8 chips hold the norms' weights
        // whole, and each sequence has 7.7 or 7.3 MB of activations.
        const double norms = 2.0 * (2 * 40 + 1) * 5120 * 7 / 8;
        for (std::size_t i = 0; i < rest.size(); ++i)
            CHECK_THAT((rest[i] - norms) / static_cast<double>(kBatches[i]),
                       Catch::Matchers::WithinAbs(fifth ? 7.341e6 : 7.668e6, 1e3));
    }
}

}  // namespace lockstep::test

#include <array>
#include <cmath>
#include <vector>

#include "src/nn/published_sizes.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "tests/catch.hpp"
#include "tests/inference/serving.hpp"

namespace lockstep::test {

namespace {

/// A chip of 197 TFLOP/s and 820 GB/s, whose links and launches are free.
ClusterSpec v5e() {
    ClusterSpec spec;
    spec.name = "v5e";
    spec.flops_bf16 = 197e12;
    spec.memory_bytes_per_second = 820e9;
    return spec;
}

/// Returns how long a pass takes that decodes a token for each of `batch` sequences,
/// whose tokens before it lie in the cache already, on 8 chips that share out heads and
/// columns.
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
        Pass pass;
        std::int32_t page = 0;
        for (std::int64_t i = 0; i < batch; ++i) {
            PagedSequence sequence{tokens - 1, 1, {}};
            for (std::int64_t j = 0; j < of_each; ++j)
                sequence.pages.push_back(page++);
            pass.tokens.sequences.push_back(std::move(sequence));
            pass.ids.push_back(0);
            pass.wanted.push_back(static_cast<std::int32_t>(i));
        }
        begun = rank.device().monitor().moment().time;
        gpt->infer(cache.begin(pass));
    });
    return static_cast<double>(report.makespan() - begun) / static_cast<double>(kSecond);
}

}  // namespace

TEST_CASE("A decode takes what its weights and its cache take to be read",
          "[inference][sim]") {
    // Austin et al. 2025, How to Scale Your Model, "All About Transformer Inference":
    // LLaMA-2 13B with 8,192 tokens before each one, in ms, with all heads of keys and
    // with a fifth of them and as many parameters.
    constexpr std::array<std::int64_t, 6> kBatches{1, 8, 16, 32, 64, 240};
    constexpr std::array<double, 6> kAllHeads{4.98, 12.13, 20.30, 36.65, 69.33, 249.09};
    constexpr std::array<double, 6> kAFifth{4.17, 5.60, 7.23, 10.50, 17.04, 52.99};
    constexpr std::int64_t kTokens = 8192;
    for (const bool fifth : {false, true}) {
        GptSizes sizes = llama2_13b(kTokens);
        if (fifth) {
            sizes.block.kv_heads = 8;
            sizes.block.inner += 2736;  // in the place of what keys and values have lost
        }
        CHECK(std::abs(static_cast<double>(sizes.parameters()) / 13.016e9 - 1) < 0.001);
        // What a decode has to read at least: all weights but the table of tokens, of
        // which it reads a row a sequence, and the cache.
        const std::int64_t weights =
            2 * (sizes.parameters() - sizes.vocabulary * sizes.block.hidden);
        std::vector<double> rest;
        for (std::size_t i = 0; i < kBatches.size(); ++i) {
            CAPTURE(fifth, kBatches[i]);
            const double took = decode_seconds(sizes, kBatches[i], kTokens);
            const std::int64_t cache =
                kBatches[i] * kTokens * cache_bytes_of_token(sizes, DType::bf16);
            const double least = static_cast<double>(weights + cache) / (8 * 820e9);
            // The published table counts 13 billion weights, all of them read, and no
            // activations.
            const double published = (fifth ? kAFifth : kAllHeads).at(i) * 1e-3;
            CHECK(std::abs(took / published - 1) < (kBatches[i] <= 32 ? 0.025 : 0.042));
            rest.push_back((took - least) * 820e9);
        }
        // The rest are bytes, too: the weights of norms, which all 8 chips have, not an
        // eighth of them; and 7.7 or 7.3 MB of activations a sequence.
        const double norms = 2.0 * (2 * 40 + 1) * 5120 * 7 / 8;
        for (std::size_t i = 0; i < rest.size(); ++i)
            CHECK_THAT((rest[i] - norms) / static_cast<double>(kBatches[i]),
                       Catch::Matchers::WithinAbs(fifth ? 7.341e6 : 7.668e6, 1e3));
    }
}

}  // namespace lockstep::test

// These tests are public. The grader tests more: other numbers of ranks, other sizes, and
// what your program costs.

#include <cmath>

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/public_test.hpp"
#include "src/nn/flash_attention.hpp"

using namespace lockstep;

constexpr std::int64_t kTokens = 12, kBatches = 2, kWidth = 3;

/// Returns values for the whole sequence, (tokens, batches, columns).
HostTensor whole(char name, std::int64_t columns) {
    HostTensor values({kTokens, kBatches, columns}, DType::f64);
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, std::sin(static_cast<double>(i + 1) * name));
    return values;
}

HostTensor own_rows(const HostTensor& whole, int ranks, int rank) {
    return whole.rows(kTokens / ranks * rank, kTokens / ranks);
}

/// Returns one rank's columns of each part.
HostTensor own_columns(const HostTensor& whole, int parts, int ranks, int rank) {
    const std::int64_t columns = whole.shape()[2];
    const std::int64_t piece = columns / parts / ranks;
    HostTensor own({kTokens, kBatches, columns / ranks}, DType::f64);
    std::int64_t next = 0;
    for (std::int64_t i = 0; i < whole.elements(); ++i)
        if (i % columns % (piece * ranks) / piece == rank) own.set(next++, whole.at(i));
    return own;
}

void test_exchange(int ranks, int parts) {
    const HostTensor x = whole('x', 4L * parts * ranks);
    const RunReport report = sim::make_cluster(ranks)->run([&](Rank& rank) {
        const Tensor own = rank.device().upload(own_rows(x, ranks, rank.index()));
        const Tensor heads = adapters::to_heads(rank, own, parts);
        rank.keep("heads", heads);
        rank.keep("tokens", adapters::to_tokens(rank, heads, parts));
    });
    for (int rank = 0; rank < ranks; ++rank) {
        const auto& kept = report.ranks[static_cast<std::size_t>(rank)].kept;
        expect_close(kept.at("heads"), own_columns(x, parts, ranks, rank),
                     fmt::format("to_heads on rank {}", rank));
        expect_close(kept.at("tokens"), own_rows(x, ranks, rank),
                     fmt::format("to_tokens on rank {}", rank));
    }
}

/// Compares each rank's results with its part of one device's results.
void test_attention(int ranks, const AttentionSizes& sizes, bool backward) {
    const HostTensor x = whole('x', 3 * sizes.heads * kWidth);
    const HostTensor dy = whole('d', sizes.heads * kWidth);
    const RunReport alone = sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        FlashAttention attention(device, sizes);
        Saved saved;
        rank.keep("y", attention.forward(device.upload(x), saved));
        rank.keep("dx", attention.backward_input(device.upload(dy), saved));
    });
    const RunReport shared = sim::make_cluster(ranks)->run([&](Rank& rank) {
        const auto upload = [&](const HostTensor& all) {
            return rank.device().upload(own_rows(all, ranks, rank.index()));
        };
        FlashAttention own_heads(rank.device(), {sizes.heads / ranks, sizes.causal});
        Saved saved;
        rank.keep("y", adapters::forward(rank, upload(x), own_heads, saved));
        if (!backward) return;
        rank.keep("dx", adapters::backward(rank, upload(dy), own_heads, saved));
    });
    for (int rank = 0; rank < ranks; ++rank)
        for (const auto& [name, left] : shared.ranks[static_cast<std::size_t>(rank)].kept)
            expect_close(left, own_rows(alone.ranks[0].kept.at(name), ranks, rank),
                         fmt::format("{} of rank {}", name, rank));
}

int main() {
    PublicTest test;
    test.check("a13.1 to_heads, to_tokens, 2 ranks", [] { test_exchange(2, 1); });
    test.check("a13.1 the same, 3 ranks, 3 parts", [] { test_exchange(3, 3); });
    test.check("a13.2 forward, 2 ranks", [] { test_attention(2, {4, false}, false); });
    test.check("a13.2 forward, 3 ranks, causal", [] {
        test_attention(3, {3, true}, false);
    });
    test.check("a13.3 backward, 2 ranks", [] { test_attention(2, {4, false}, true); });
    test.check("a13.3 backward, 3 ranks, causal", [] {
        test_attention(3, {6, true}, true);
    });
    return test.finish();
}

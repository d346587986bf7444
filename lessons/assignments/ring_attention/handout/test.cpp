// These tests are public. The grader tests more: other numbers of ranks, other sizes, and
// what your program costs.

#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/comm/chunks.hpp"
#include "src/course/public_test.hpp"

using namespace lockstep;

constexpr std::int64_t kBatch = 2, kWidth = 3;  // width of a head

/// Returns values for the whole sequence, or a rank's part of these values.
HostTensor values_of(const std::string& name, const Sequence& sequence, Chunk part) {
    HostTensor whole({sequence.tokens, kBatch, sequence.heads * kWidth}, DType::f64);
    for (std::int64_t i = 0; i < whole.elements(); ++i)
        whole.set(i, std::sin(static_cast<double>(i + 1) * static_cast<double>(name[0])));
    return whole.rows(part.begin, part.count);
}

Qkv upload_own(Rank& rank, const Sequence& sequence, Chunk part) {
    const auto upload = [&](const char* name) {
        return rank.device().upload(values_of(name, sequence, part));
    };
    return {upload("queries"), upload("keys"), upload("values")};
}

void keep_inputs(Rank& rank, const Qkv& own) {
    rank.keep("queries", own.queries);
    rank.keep("keys", own.keys);
    rank.keep("values", own.values);
}

void keep_attended(Rank& rank, const Attended& attended) {
    rank.keep("y", attended.y);
    rank.keep("log_sum_exp", attended.log_sum_exp);
}

void keep_gradients(Rank& rank, const Tensor& dy, const Qkv& d) {
    rank.keep("dy", dy);
    rank.keep("dq", d.queries);
    rank.keep("dk", d.keys);
    rank.keep("dv", d.values);
}

/// Runs attention over the whole sequence on one device. Keeps inputs and results.
RunReport run_whole(const Sequence& sequence) {
    return sim::make_cluster(1)->run([=](Rank& rank) {
        Device& device = rank.device();
        const Chunk all{0, sequence.tokens};
        const auto heads = [&](const Tensor& tensor) {
            return Heads{tensor, sequence.heads, kWidth, 0};
        };
        const Qkv own = upload_own(rank, sequence, all);
        const AttentionHeads seen{heads(own.queries), heads(own.keys), heads(own.values)};
        const AttentionOptions options{1 / std::sqrt(kWidth), sequence.causal, {}, {}};
        const OnlineAttention state = device.begin_attention(seen.queries);
        device.attend(state, seen, options);
        const Tensor log_sum_exp = device.finish_attention(state);
        keep_inputs(rank, own);
        keep_attended(rank, {state.y, log_sum_exp});

        const auto zeros = [&] { return device.zeros(state.y.shape(), DType::f64); };
        const Qkv d{zeros(), zeros(), zeros()};
        const Tensor dy = device.upload(values_of("gradient", sequence, all));
        device.attend_backward(
            {heads(d.queries), heads(d.keys), heads(d.values)}, seen,
            {dy, log_sum_exp, device.head_row_products(heads(dy), heads(state.y))},
            options);
        keep_gradients(rank, dy, d);
    });
}

/// Runs your attention. Keeps inputs and results, as they are afterwards.
RunReport run_ring(int ranks, const Sequence& sequence, bool backward) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.trace = true;
    return sim::make_cluster(options)->run([=](Rank& rank) {
        const Chunk part = chunk(sequence.tokens, rank.size(), rank.index());
        const Qkv own = upload_own(rank, sequence, part);
        const Attended attended = adapters::forward(rank, own, sequence);
        if (backward) {
            const Tensor dy = rank.device().upload(values_of("gradient", sequence, part));
            keep_gradients(rank, dy,
                           adapters::backward(rank, own, attended, dy, sequence));
        }
        keep_inputs(rank, own);
        keep_attended(rank, attended);
    });
}

/// Returns a rank's tokens of a tensor (batches, heads, tokens).
HostTensor last_part(const HostTensor& whole, Chunk part) {
    const Shape& shape = whole.shape();
    HostTensor own({shape[0], shape[1], part.count}, DType::f64);
    for (std::int64_t i = 0; i < own.elements(); ++i)
        own.set(i, whole.at(i / part.count * shape[2] + part.begin + i % part.count));
    return own;
}

/// Compares each rank's tensors with its part of one device's tensors.
void compare(const RunReport& ring, const Sequence& sequence,
             const std::vector<std::string>& names, const std::string& when = "") {
    const RunReport whole = run_whole(sequence);
    const int ranks = static_cast<int>(ring.ranks.size());
    for (int rank = 0; rank < ranks; ++rank)
        for (const std::string& name : names) {
            const Chunk part = chunk(sequence.tokens, ranks, rank);
            const HostTensor& all = whole.ranks[0].kept.at(name);
            expect_close(ring.ranks[rank].kept.at(name),
                         name == "log_sum_exp" ? last_part(all, part)
                                               : all.rows(part.begin, part.count),
                         fmt::format("{} of rank {}{}", name, rank, when));
        }
}

void test_forward(int ranks, const Sequence& sequence) {
    const RunReport ring = run_ring(ranks, sequence, false);
    compare(ring, sequence, {"y", "log_sum_exp"});
    compare(ring, sequence, {"queries", "keys", "values"}, " after the call");
}

void test_backward(int ranks, const Sequence& sequence) {
    const RunReport ring = run_ring(ranks, sequence, true);
    compare(ring, sequence, {"dq", "dk", "dv"});
    compare(ring, sequence, {"queries", "keys", "values", "y", "log_sum_exp", "dy"},
            " after the call");
}

void test_bytes(int ranks, const Sequence& sequence) {
    const RunReport report = run_ring(ranks, sequence, false);
    for (int rank = 0; rank < ranks; ++rank) {
        const Chunk next = chunk(sequence.tokens, ranks, (rank + 1) % ranks);
        const std::int64_t token = 2 * kBatch * sequence.heads * kWidth * 8;
        expect_equal(report.ranks[rank].bytes_sent(),
                     (sequence.tokens - next.count) * token,
                     fmt::format("bytes that rank {} sends", rank));
    }
}

/// Expects that every message goes to the next rank.
void test_route(int ranks, const Sequence& sequence, bool backward) {
    for (const TraceFlow& flow : run_ring(ranks, sequence, backward).flows)
        expect_equal(flow.destination_rank, (flow.source_rank + 1) % ranks,
                     fmt::format("the rank that rank {} sends to", flow.source_rank));
}

void test_alone(const Sequence& sequence) {
    test_backward(1, sequence);
    expect_equal(run_ring(1, sequence, true).bytes_sent(), 0, "bytes sent");
}

/// Tests the six scores of the lesson's step 5, in two blocks, with `shift` added.
void test_online_softmax(double shift, bool merges) {
    const double s = shift;
    OnlineSoftmax state(1, 1), other(1, 1);
    adapters::absorb(state, {s + 1, s + 3, s + 2}, {10, 20, 30});
    adapters::absorb(merges ? other : state, {s + 5, s + 4, s + 0}, {40, 50, 60});
    if (merges) adapters::merge(state, other);
    double sum = 0, mean = 0;
    for (const auto& [score, value] :
         {std::pair{1, 10}, {3, 20}, {2, 30}, {5, 40}, {4, 50}, {0, 60}}) {
        sum += std::exp(score);
        mean += std::exp(score) * value;
    }
    expect_close(HostTensor::of({1}, adapters::finish(state)),
                 HostTensor::of({1}, std::vector<double>{mean / sum}), "the mean");
}

void expect_means(const OnlineSoftmax& state, const std::vector<double>& means,
                  const std::string& when) {
    expect_close(HostTensor::of({state.rows, state.width}, adapters::finish(state)),
                 HostTensor::of({state.rows, state.width}, means), "the means " + when);
}

/// Tests blocks of one key. The maximum rises in row 0 and falls in row 1. Row 2 sees
/// only the block in the middle, and row 3 sees nothing.
void test_unseen_keys() {
    constexpr double kUnseen = -std::numeric_limits<double>::infinity();
    OnlineSoftmax state(4, 1), nothing(4, 1);
    adapters::absorb(state, {-990, 990, kUnseen, kUnseen}, {10});
    expect_means(state, {10, 10, 0, 0}, "after one block");
    adapters::absorb(state, {0, 0, 0, kUnseen}, {20});
    expect_means(state, {20, 10, 20, 0}, "after two blocks");
    adapters::absorb(state, {990, -990, kUnseen, kUnseen}, {30});
    expect_means(state, {30, 10, 20, 0}, "after three blocks");
    adapters::merge(nothing, state);
    expect_means(nothing, {30, 10, 20, 0}, "of a new state after merging");
}

void test_size() {
    OnlineSoftmax state(2, 1), other = state;
    adapters::absorb(state, {1, 2, 3, 4, 5, 6}, {10, 20, 30});
    adapters::merge(state, other);
    const auto numbers = state.maximum.size() + state.sum.size() + state.output.size();
    expect_equal(static_cast<std::int64_t>(numbers), 6, "numbers in the merged state");
}

int main() {
    const Sequence even{8, 2, false}, causal{11, 2, true};
    PublicTest test;
    test.check("a5.1 absorb and finish", [] { test_online_softmax(0, false); });
    test.check("a5.1 the same, all scores 900 less",
               [] { test_online_softmax(-900, false); });
    test.check("a5.1 merge", [] { test_online_softmax(0, true); });
    test.check("a5.1 rows that see nothing, maxima that move", test_unseen_keys);
    test.check("a5.1 a state stays as large as it was made", test_size);
    test.check("a5.2 forward, 4 ranks, 8 tokens", [=] { test_forward(4, even); });
    test.check("a5.2 forward, 3 ranks, 11 tokens, causal",
               [=] { test_forward(3, causal); });
    test.check("a5.2 forward, 1 rank", [=] { test_forward(1, causal); });
    test.check("a5.2 forward goes round the ring", [=] { test_route(4, even, false); });
    test.check("a5.2 forward sends every block but the next rank's",
               [=] { test_bytes(4, even); });
    test.check("a5.3 backward, 4 ranks, 8 tokens", [=] { test_backward(4, even); });
    test.check("a5.3 backward, 3 ranks, 11 tokens, causal",
               [=] { test_backward(3, causal); });
    test.check("a5.3 backward, 1 rank, which sends nothing", [=] { test_alone(causal); });
    test.check("a5.3 backward goes round the ring", [=] { test_route(4, even, true); });
    return test.finish();
}

// The time of Ring Attention on the virtual clock, derived from the cluster's figures.

#include <cmath>
#include <utility>

#include "src/device/operations/attention.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/attention.hpp"

namespace lockstep::test {

namespace {

/// The times of the operations in the forward of Ring Attention, from the costs in
/// src/device/device.hpp and a cluster's figures.
struct RingTimes {
    const Problem& problem;
    const ClusterSpec& spec;
    std::int64_t ranks;

    std::int64_t share() const { return problem.tokens / ranks; }
    std::int64_t rows() const { return share() * problem.batch * problem.sizes.heads; }
    std::int64_t bytes(std::int64_t elements) const {
        return elements * bytes_of(problem.dtype);
    }
    std::int64_t block_bytes() const {
        return bytes(share() * problem.batch * 2 * problem.key_columns());
    }
    std::int64_t state_bytes() const { return bytes(rows() * (problem.width + 2)); }
    Picoseconds operation(std::int64_t flops, std::int64_t moved) const {
        return operation_time(spec, flops, moved, problem.dtype);
    }

    Picoseconds hop() const { return message_time(spec.inside, block_bytes()); }
    /// The time of attention to one block, with `scores` scores in each head.
    Picoseconds attend(std::int64_t scores) const {
        return operation(
            scores * problem.batch * problem.sizes.heads *
                (4 * problem.width + ops::Attend::kFlopsOfPair),
            bytes(rows() * problem.width) + block_bytes() + 2 * state_bytes());
    }
    /// The time to make x, the state, and the copy of the rank's own keys and values.
    Picoseconds before() const {
        return operation(0, bytes(share() * problem.batch * problem.columns())) +
               operation(0, bytes(rows() * problem.width)) +
               2 * operation(0, bytes(rows())) + operation(0, 2 * block_bytes());
    }
    Picoseconds after() const {
        const std::int64_t y = rows() * problem.width;
        return operation(y + rows() * ops::FinishAttention::kFlopsOfRow,
                         2 * state_bytes() - bytes(rows()));
    }
    Picoseconds forward(TokenOrder order) const {
        sim::ClusterOptions options = shapes_only(static_cast<int>(ranks));
        options.spec = spec;
        return attend_zeros(problem, ContextMethod::ring_attention, order,
                            Passes::forward, std::move(options))
            .makespan();
    }
};

}  // namespace

TEST_CASE("On a fast link Ring Attention takes as long as its arithmetic",
          "[parallel][sim]") {
    const bool causal = GENERATE(false, true);
    const int ranks = GENERATE(1, 2, 4, 8);
    const Problem problem{std::int64_t{4096} * ranks, 1, {4, causal}, 64, DType::f32};
    ClusterSpec spec = load_cluster("classroom");
    spec.inside = {1e-6, 100e9};
    const RingTimes times{problem, spec, ranks};
    const std::int64_t share = times.share();
    const std::int64_t own = share * (share + 1) / 2, half = share * share / 2;
    // Each hop is shorter than the shortest computation that overlaps with it.
    REQUIRE(times.hop() < times.attend(half));
    // Everything else overlaps with no hop.
    const Picoseconds rest = times.before() + times.after();
    if (!causal) {
        CHECK(times.forward(TokenOrder::contiguous) ==
              rest + ranks * times.attend(share * share));
        return;
    }
    // The last rank sees all other blocks whole, and half of its own block.
    const Picoseconds contiguous =
        rest + times.attend(own) + (ranks - 1) * times.attend(share * share);
    const Picoseconds zigzag =
        rest + times.attend(own) + (ranks - 1) * times.attend(half);
    CHECK(times.forward(TokenOrder::contiguous) == contiguous);
    CHECK(times.forward(TokenOrder::zigzag) == zigzag);
    // N - 1/2 blocks against N/2 blocks give the ratio (2N-1)/N, which is below 2. In
    // both orders, some time is also spent outside of attention.
    const double overhead =
        static_cast<double>(zigzag - ranks * times.attend(half) +
                            ranks * picoseconds(spec.launch_seconds)) /
        static_cast<double>(zigzag);
    REQUIRE(overhead < 0.05);
    const double ratio = static_cast<double>(contiguous) / static_cast<double>(zigzag);
    CHECK(std::abs(ratio - (2.0 * ranks - 1) / ranks) <= 2 * overhead);
}

TEST_CASE("On a slow link Ring Attention takes as long as its messages",
          "[parallel][sim]") {
    const bool causal = GENERATE(false, true);
    const int ranks = GENERATE(2, 3, 4, 8);
    const Problem problem{std::int64_t{512} * ranks, 1, {4, causal}, 64, DType::f32};
    ClusterSpec spec = load_cluster("classroom");
    spec.inside = {1e-6, 0.1e9};
    const RingTimes times{problem, spec, ranks};
    const std::int64_t share = times.share();
    REQUIRE(times.attend(share * share) < times.hop());
    // The hops follow one another. Attention to the last block begins after the hops.
    const std::int64_t last = causal ? share * share / 2 : share * share;
    CHECK(times.forward(TokenOrder::zigzag) == times.before() +
                                                   (ranks - 1) * times.hop() +
                                                   times.attend(last) + times.after());
}

}  // namespace lockstep::test

#include <algorithm>
#include <cmath>

#include "src/comm/chunks.hpp"
#include "src/parallel/ring_collectives.hpp"
#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

// Compares counted bytes and messages with the formulas of Thakur et al. 2005 and of
// NCCL's documentation. If n divides the buffer, compares the counts of each rank;
// otherwise, their sum over the ranks.

namespace lockstep::test {

namespace {

constexpr std::int64_t kFloat = 4;

struct Sum {
    std::int64_t messages = 0;
    std::int64_t bytes_sent = 0;
    std::int64_t bytes_received = 0;
};

RunReport run(int ranks, const Program& program, const std::string& spec = "classroom") {
    return sim::make_cluster(ranks, spec)->run(program);
}

Sum sum_of(const RunReport& report) {
    Sum sum;
    for (const RankReport& rank : report.ranks) {
        for (const Traffic& traffic : rank.traffic) {
            sum.messages += traffic.messages_sent;
            sum.bytes_sent += traffic.bytes_sent;
            sum.bytes_received += traffic.bytes_received;
        }
    }
    CHECK(sum.bytes_sent == sum.bytes_received);
    return sum;
}

Tensor floats(Rank& rank, std::int64_t count) {
    return rank.device().zeros({count}, DType::f32);
}

void check_all_reduce(int n, std::int64_t count) {
    const RunReport built_in =
        run(n, [&](Rank& rank) { rank.world().all_reduce(floats(rank, count)).wait(); });
    const Sum sum = sum_of(built_in);
    CHECK(sum.messages == std::int64_t{2} * (n - 1) * n);
    CHECK(sum.bytes_sent == std::int64_t{2} * (n - 1) * count * kFloat);
    if (count % n == 0)
        for (const RankReport& rank : built_in.ranks)
            CHECK(rank.bytes_sent() == std::int64_t{2} * (n - 1) * (count / n) * kFloat);
}

void check_by_hand(int n, std::int64_t count) {
    const auto values = [&](Rank& rank) {
        Tensor x = floats(rank, count);
        rank.device().random_normal(x, {7, "x"}, 0, 1, rank.index() * count);
        return x;
    };
    const RunReport by_hand = run(n, [&](Rank& rank) {
        const Tensor x = values(rank);
        ring_all_reduce(rank.device(), rank.world(), x);
        rank.keep("x", x);
    });
    const RunReport built_in = run(n, [&](Rank& rank) {
        const Tensor x = values(rank);
        rank.world().all_reduce(x).wait();
        rank.keep("x", x);
    });
    const RunReport doubled = run(n, [&](Rank& rank) {
        const Tensor x = values(rank);
        recursive_doubling_all_reduce(rank.device(), rank.world(), x);
        rank.keep("x", x);
    });
    for (std::size_t r = 0; r < by_hand.ranks.size(); ++r) {
        const RankReport& mine = by_hand.ranks[r];
        const RankReport& theirs = built_in.ranks[r];
        INFO("rank " << r << " of " << n << ", " << count << " elements");
        CHECK(mine.kept.at("x") == theirs.kept.at("x"));
        CHECK(mine.bytes_sent() == theirs.bytes_sent());
        CHECK(mine.messages_sent() == theirs.messages_sent());
        for (std::int64_t i = 0; i < count; ++i)
            CHECK(std::abs(doubled.ranks[r].kept.at("x").at(i) -
                           theirs.kept.at("x").at(i)) < 1e-5);
    }
}

}  // namespace

TEST_CASE("an all-reduce sends 2(n-1)/n of the buffer in 2(n-1) messages",
          "[sim][bytes]") {
    for (int n = 1; n <= 9; ++n)
        for (const std::int64_t count : {0, 1, 7, 64, 360, 2520})
            check_all_reduce(n, count);
}

TEST_CASE("the ring by hand equals all_reduce in value, messages and bytes",
          "[sim][bytes]") {
    for (int n = 1; n <= 9; ++n)
        for (const std::int64_t count : {0, 1, 7, 64, 360})
            check_by_hand(n, count);
}

TEST_CASE("recursive doubling sends the buffer lg n times", "[sim][bytes]") {
    for (const int n : {1, 2, 4, 8, 16}) {
        const RunReport report = run(n, [](Rank& rank) {
            recursive_doubling_all_reduce(rank.device(), rank.world(), floats(rank, 100));
        });
        const auto steps = static_cast<std::int64_t>(std::lround(std::log2(n)));
        for (const RankReport& rank : report.ranks) {
            CHECK(rank.bytes_sent() == steps * 100 * kFloat);
            CHECK(rank.messages_sent() == steps);
        }
    }
}

TEST_CASE("the halves of the ring by hand equal the built-in ones", "[sim][bytes]") {
    for (int n = 1; n <= 9; ++n) {
        const std::int64_t block = 5;
        const RunReport by_hand = run(n, [&](Rank& rank) {
            const Tensor x = floats(rank, n * block);
            rank.device().random_normal(x, {7, "x"}, 0, 1,
                                        std::int64_t{rank.index()} * n * block);
            ring_reduce_scatter(rank.device(), rank.world(), x);
            rank.keep("block", x.slice(rank.index() * block, block));
            ring_all_gather(rank.world(), x);
            rank.keep("whole", x);
        });
        const RunReport built_in = run(n, [&](Rank& rank) {
            const Tensor x = floats(rank, n * block);
            rank.device().random_normal(x, {7, "x"}, 0, 1,
                                        std::int64_t{rank.index()} * n * block);
            const Tensor mine = floats(rank, block);
            rank.world().reduce_scatter(mine, x).wait();
            rank.keep("block", mine);
            rank.world().all_gather(x, mine).wait();
            rank.keep("whole", x);
        });
        for (std::size_t r = 0; r < by_hand.ranks.size(); ++r) {
            CHECK(by_hand.ranks[r].kept == built_in.ranks[r].kept);
            CHECK(by_hand.ranks[r].bytes_sent() == built_in.ranks[r].bytes_sent());
            CHECK(by_hand.ranks[r].messages_sent() == built_in.ranks[r].messages_sent());
        }
    }
}

TEST_CASE("the other collectives send their formulas' bytes", "[sim][bytes]") {
    for (int n = 1; n <= 9; ++n) {
        const std::int64_t block = 13;
        const std::int64_t bytes = block * kFloat;
        const auto sent_by = [&](const Program& program) {
            return sum_of(run(n, program));
        };

        const Sum gathered = sent_by([&](Rank& rank) {
            rank.world().all_gather(floats(rank, n * block), floats(rank, block)).wait();
        });
        CHECK(gathered.bytes_sent == std::int64_t{n} * (n - 1) * bytes);
        CHECK(gathered.messages == std::int64_t{n} * (n - 1));
        const Sum scattered = sent_by([&](Rank& rank) {
            rank.world()
                .reduce_scatter(floats(rank, block), floats(rank, n * block))
                .wait();
        });
        CHECK(scattered.bytes_sent == std::int64_t{n} * (n - 1) * bytes);
        CHECK(scattered.messages == std::int64_t{n} * (n - 1));
        const Sum transposed = sent_by([&](Rank& rank) {
            rank.world()
                .all_to_all(floats(rank, n * block), floats(rank, n * block))
                .wait();
        });
        CHECK(transposed.bytes_sent == std::int64_t{n} * (n - 1) * bytes);
        CHECK(transposed.messages == std::int64_t{n} * (n - 1));
        for (int root = 0; root < n; ++root) {
            const Sum broadcast = sent_by([&](Rank& rank) {
                rank.world().broadcast(floats(rank, block), root).wait();
            });
            CHECK(broadcast.bytes_sent == (n - 1) * bytes);
            const Sum reduced = sent_by([&](Rank& rank) {
                rank.world().reduce(floats(rank, block), root).wait();
            });
            CHECK(reduced.bytes_sent == (n - 1) * bytes);
            const RunReport to_root = run(n, [&](Rank& rank) {
                const bool is_root = rank.index() == root;
                const Tensor whole = is_root ? floats(rank, n * block) : Tensor();
                rank.world().gather(whole, floats(rank, block), root).wait();
            });
            CHECK(sum_of(to_root).bytes_sent == (n - 1) * bytes);
            CHECK(to_root.ranks[static_cast<std::size_t>(root)].bytes_sent() == 0);
        }
        const Sum barrier = sent_by([](Rank& rank) { rank.world().barrier().wait(); });
        CHECK(barrier.bytes_sent == 0);
        CHECK(barrier.messages == n * static_cast<std::int64_t>(std::ceil(std::log2(n))));
    }
}

TEST_CASE("direct collectives count bytes by the link of each pair", "[sim][bytes]") {
    const std::int64_t block = 5;
    const auto bytes = [&](const Program& program, std::size_t r, bool between,
                           bool sent) {
        const RunReport report = run(16, program);
        std::int64_t sum = 0;
        for (const Traffic& traffic : report.ranks[r].traffic)
            if (traffic.between_nodes == between)
                sum += sent ? traffic.bytes_sent : traffic.bytes_received;
        return sum;
    };
    const Program transpose = [&](Rank& rank) {
        rank.world()
            .all_to_all(floats(rank, 16 * block), floats(rank, 16 * block))
            .wait();
    };
    CHECK(bytes(transpose, 3, false, true) == 7 * block * kFloat);
    CHECK(bytes(transpose, 3, true, true) == 8 * block * kFloat);
    const Program gather = [&](Rank& rank) {
        const Tensor whole = rank.index() == 0 ? floats(rank, 16 * block) : Tensor();
        rank.world().gather(whole, floats(rank, block), 0).wait();
    };
    CHECK(bytes(gather, 0, false, false) == 7 * block * kFloat);
    CHECK(bytes(gather, 0, true, false) == 8 * block * kFloat);
    CHECK(bytes(gather, 7, true, true) == 0);
}

TEST_CASE("bytes between nodes are counted separately", "[sim][bytes]") {
    const RunReport report = run(16, [](Rank& rank) {
        rank.world().all_reduce(floats(rank, 160)).wait();
        if (rank.index() == 0) rank.world().send(floats(rank, 3), 9).wait();
        if (rank.index() == 9) rank.world().recv(floats(rank, 3), 0).wait();
    });
    const auto between = [&](std::size_t r) {
        std::int64_t bytes = 0;
        for (const Traffic& traffic : report.ranks[r].traffic)
            if (traffic.between_nodes) bytes += traffic.bytes_sent;
        return bytes;
    };
    // Ranks 7 and 15 send to the other node, because the ring continues there.
    CHECK(between(7) == std::int64_t{2} * 15 * 10 * kFloat);
    CHECK(between(15) == std::int64_t{2} * 15 * 10 * kFloat);
    CHECK(between(6) == 0);
    CHECK(between(0) == 3 * kFloat);
}

TEST_CASE("the largest allowed number of ranks sends the formulas' bytes", "[sim]") {
    constexpr int kRanks = sim::ClusterOptions::kMaxRanks;
    constexpr int kGroup = 64;
    sim::ClusterOptions options;
    options.ranks = kRanks;
    options.spec = load_cluster("classroom");
    options.numbers = false;
    const RunReport report = sim::make_cluster(options)->run([](Rank& rank) {
        const Tensor blocks = floats(rank, kRanks);
        const Tensor block = floats(rank, 1);
        rank.world().all_reduce(blocks).wait();
        rank.world().reduce_scatter(block, blocks).wait();
        rank.world().all_gather(blocks, block).wait();
        rank.world().all_to_all(blocks, blocks).wait();
        const auto group = rank.world().split(rank.index() / kGroup, rank.index());
        group
            ->all_reduce(group->rank() == 0 ? blocks.slice(0, kGroup)
                                            : blocks.slice(kGroup, kGroup))
            .wait();
    });
    // The all-reduce sends twice as many bytes as one of the other collectives.
    constexpr std::int64_t kBytes = (5 * (kRanks - 1) + 2 * (kGroup - 1)) * kFloat;
    const auto count = std::ranges::count(report.ranks, kBytes, &RankReport::bytes_sent);
    CHECK(count == kRanks);
}

}  // namespace lockstep::test

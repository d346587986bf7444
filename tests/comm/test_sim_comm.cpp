#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/comm/comm_contract.hpp"

namespace lockstep::test {

namespace {

std::unique_ptr<Cluster> make(int ranks) {
    return sim::make_cluster(ranks);
}

/// Runs all verbs that a group can contain, on numbers whose sums are not exact. The
/// ranks keep each result.
void every_verb(Rank& rank, std::int64_t count, DType dtype, bool in_group) {
    Device& device = rank.device();
    const std::int64_t blocks = rank.size() * count;
    std::vector<std::pair<std::string, Tensor>> made;
    const auto random = [&](const char* name, std::int64_t elements) {
        const Tensor values = device.empty({elements}, dtype);
        device.random_normal(values, {5, name}, 0, 1, std::int64_t{1000} * rank.index());
        return made.emplace_back(name, values).second;
    };
    const Tensor whole = random("blocks", blocks), own = random("own", count);
    const auto start = [&](auto& to, auto finish) {
        finish(to.all_reduce(random("all_reduce", count)));
        finish(to.all_gather(random("all_gather", blocks), own));
        finish(to.reduce_scatter(random("reduce_scatter", count), whole));
        finish(to.broadcast(random("broadcast", count), 1));
        finish(to.reduce(random("reduce", count), 1));
        const Tensor gathered = random("gather", blocks);
        finish(to.gather(rank.index() == 1 ? gathered : Tensor(), own, 1));
        finish(to.scatter(random("scatter", count), rank.index() == 1 ? whole : Tensor(),
                          1));
        finish(to.all_to_all(random("all_to_all", blocks), whole));
    };
    if (in_group) {
        Group group = rank.world().group();
        start(group, [](Group&) {});
        group.start().wait();
    } else {
        start(rank.world(), [](Work work) { work.wait(); });
    }
    for (const auto& [name, values] : made)
        rank.keep(name, values);
}

}  // namespace

TEST_CASE("communicators follow the rules", "[sim][comm]") {
    for (const CommRule& rule : comm_rules())
        DYNAMIC_SECTION(rule.text) {
            for (const int ranks : {1, 2, 3, 4, 5, 7, 9})
                for (const std::int64_t count : {0, 1, 13})
                    for (const DType dtype :
                         {DType::f32, DType::f64, DType::bf16, DType::i32})
                        rule.check(make, ranks, count, dtype);
        }
}

TEST_CASE("an operation that a group refuses is not part of the group",
          "[sim][comm][errors]") {
    make(2)->run([](Rank& rank) {
        const Tensor x = rank.device().zeros({4}, DType::f32);
        Group group = rank.world().group();
        CHECK_THROWS_AS(group.send(x, 9), UsageError);
        group.all_reduce(x).start().wait();
        CHECK_THROWS_AS(group.all_reduce(x), FaultError);
        CHECK_THROWS_AS(group.start(), FaultError);
    });
}

TEST_CASE("an exception cancels its group", "[sim][comm][errors]") {
    make(2)->run([](Rank& rank) {
        const Tensor x = rank.device().zeros({4}, DType::f32);
        try {
            rank.world().group().all_reduce(x).send(x, 9).start().wait();
            FAIL("rank 9 was found");
        } catch (const UsageError&) {
        }
        rank.world().barrier().wait();
    });
}

TEST_CASE("a gather without input and a scatter without output are refused",
          "[sim][comm][errors]") {
    make(2)->run([](Rank& rank) {
        const Tensor x = rank.device().zeros({1}, DType::f32);
        CHECK_THROWS_AS(rank.world().gather(x, Tensor(), 1 - rank.index()), UsageError);
        CHECK_THROWS_AS(rank.world().scatter(Tensor(), x, 1 - rank.index()), UsageError);
    });
}

TEST_CASE("waiting for moved or empty work is refused", "[sim][comm][errors]") {
    make(1)->run([](Rank& rank) {
        std::vector<Work> works(2);
        CHECK_THROWS_AS(works[1].wait(), UsageError);
        works[1] = rank.world().barrier();
        works[1].wait();
        Work work = rank.world().barrier();
        Work moved = std::move(work);
        moved.wait();
        // NOLINTNEXTLINE(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
        CHECK_THROWS_AS(work.wait(), UsageError);
    });
}

TEST_CASE("rows and elements beyond the end are refused, however many",
          "[sim][comm][errors]") {
    make(1)->run([](Rank& rank) {
        constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
        const Tensor x = rank.device().zeros({4}, DType::f32);
        CHECK_THROWS_AS(x.rows(1, kMost), UsageError);
        CHECK_THROWS_AS(x.slice(1, kMost), UsageError);
        CHECK_THROWS_AS(HostTensor({4}, DType::f32).rows(1, kMost), UsageError);
    });
}

TEST_CASE("an operation as data uses only members that its verb needs", "[sim][comm]") {
    const RunReport report = make(3)->run([](Rank& rank) {
        Device& device = rank.device();
        const Tensor mine = device.zeros({2}, DType::f64);
        device.fill(mine, rank.index() + 1);
        const Tensor other = device.zeros({2}, DType::f64);
        device.fill(other, -1);
        // The one buffer of a broadcast can be given as input or as output. The dtype and
        // the count are the buffer's.
        rank.world()
            .start({{.verb = Verb::broadcast,
                     .dtype = DType::i32,
                     .all_to_all_v = true,
                     .peer = 2,
                     .count = 99},
                    other,
                    mine})
            .wait();
        rank.keep("broadcast", mine);
        rank.keep("untouched", other);
        rank.world().start({{.verb = Verb::reduce, .peer = 1}, other}).wait();
        rank.keep("reduced", other);
        // A barrier and a gather ignore fields that belong to other verbs.
        rank.world().start({{.verb = Verb::barrier, .peer = 7, .count = 5}, mine}).wait();
        const Tensor all = device.zeros({6}, DType::f64);
        rank.world()
            .start({{.verb = Verb::all_gather,
                     .reduction = Reduction::mean,
                     .peer = rank.index()},
                    all,
                    mine})
            .wait();
        rank.keep("gathered", all);
    });
    for (int r = 0; r < 3; ++r) {
        const auto& kept = report.ranks[r].kept;
        CHECK(kept.at("broadcast").at(0) == 3);
        CHECK(kept.at("untouched").at(0) == -1);
        CHECK(kept.at("reduced").at(0) == (r == 1 ? -3 : -1));
        CHECK(kept.at("gathered").at(5) == 3);
    }
}

TEST_CASE("bf16 is rounded at each step of the ring", "[sim][comm][bf16]") {
    constexpr int kRanks = 4;
    const auto value_of = [](int rank, int i) { return Bf16(1.0 / (3 + rank + 7 * i)); };
    const RunReport report = make(kRanks)->run([&](Rank& rank) {
        HostTensor values({8}, DType::bf16);
        for (int i = 0; i < 8; ++i)
            values.set(i, float{value_of(rank.index(), i)});
        const Tensor x = rank.device().upload(values);
        rank.world().all_reduce(x).wait();
        rank.keep("sum", x);
    });
    // Chunk c of two elements starts at the rank after rank c, and ends at rank c.
    for (const RankReport& rank : report.ranks)
        for (int i = 0; i < 8; ++i) {
            const int chunk = i / 2;
            Bf16 sum = value_of((chunk + 1) % kRanks, i);
            for (int step = 2; step <= kRanks; ++step)
                sum = Bf16(float{sum} + float{value_of((chunk + step) % kRanks, i)});
            CHECK(rank.kept.at("sum").at(i) == float{sum});
        }
}

TEST_CASE("collectives give the same bits in one group and one by one",
          "[sim][comm][group]") {
    constexpr std::int64_t kCount = 13;
    for (const int ranks : {2, 3, 5})
        for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
            CAPTURE(ranks, name_of(dtype));
            const auto kept = [&](bool in_group) {
                std::vector<std::map<std::string, HostTensor>> all;
                const RunReport report = make(ranks)->run(
                    [&](Rank& rank) { every_verb(rank, kCount, dtype, in_group); });
                for (const RankReport& rank : report.ranks)
                    all.push_back(rank.kept);
                return all;
            };
            const auto one_by_one = kept(false);
            REQUIRE(one_by_one[0].size() == 10);
            CHECK(kept(true) == one_by_one);
        }
}

TEST_CASE("impossible operations as data are refused", "[sim][comm][errors]") {
    make(2)->run([](Rank& rank) {
        const Tensor x = rank.device().zeros({2}, DType::f32);
        CHECK_THROWS_AS(rank.world().start({{.verb = Verb::split}}), UsageError);
        CHECK_THROWS_AS(rank.world().start({{.verb = Verb::send, .peer = 2}, {}, x}),
                        UsageError);
        CHECK_THROWS_AS(rank.world().start({{.verb = Verb::all_reduce}}), UsageError);
        for (const Verb verb : {Verb::barrier, Verb::split}) {
            Group group = rank.world().group();
            CHECK_THROWS_AS(group.add({{.verb = verb, .peer = 0}, x, x}), UsageError);
            group.start().wait();
        }
    });
}

}  // namespace lockstep::test

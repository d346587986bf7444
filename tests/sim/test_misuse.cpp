#include <cstdlib>
#include <set>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/sim/worlds.hpp"

// Programs misuse the library's objects, fail in odd places, or make several mistakes at
// once. Each program ends in the same way in every world, and never crashes.

namespace lockstep::test {

namespace {

Tensor floats(Rank& rank, std::int64_t count, double value = 0) {
    Tensor tensor = rank.device().empty({count}, DType::f32);
    rank.device().fill(tensor, value);
    return tensor;
}

/// Checks that the program ends, in every world, with an error that says `words`.
void throws_with(int ranks, const Program& program, const std::string& words) {
    for (const World& world : all_worlds()) {
        std::string said = "nothing";
        try {
            make_cluster_in(world, ranks)->run(program);
        } catch (const std::exception& error) {
            said = error.what();
        }
        INFO(said);
        CHECK(said.find(words) != std::string::npos);
    }
}

/// Calls `check` with the run's report in each world. Fails if a fault is found.
void in_every_world(int ranks, const Program& program,
                    const std::function<void(const RunReport&)>& check,
                    sim::CheckLevel level = sim::check_level_asked()) {
    for (World world : all_worlds()) {
        world.check = level;
        check(make_cluster_in(world, ranks)->run(program));
    }
}

}  // namespace

TEST_CASE("if there are two mistakes, the earlier in virtual time is reported",
          "[sim][errors]") {
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        const auto pair = rank.world().split(rank.index() / 2, 0);
        const Tensor x = floats(rank, 8);
        const int work = rank.index() == 1 ? 10 : rank.index() >= 2 ? 5 : 0;
        for (int i = 0; i < work; ++i)
            rank.device().fill(x, 0);
        pair->all_reduce(floats(rank, rank.index() % 2 == 0 ? 4 : 8)).wait();
    });
    CHECK(found.fault == "F02");
    CHECK(found.members == std::vector<int>{2, 3});
}

TEST_CASE("other ranks with a mistake or an exception are also reported",
          "[sim][errors]") {
    constexpr std::int64_t kMuch = std::int64_t{1} << 40;
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        const Tensor x = floats(rank, 8);
        if (rank.index() < 2) floats(rank, kMuch);
        rank.device().fill(x, 1);
        require(rank.index() != 2, [] { return std::string("no\nmore"); });
    });
    CHECK(found.fault == "F30");
    CHECK(found.parties.front().ranks == std::vector<int>{0});
    const std::string text = found.text();
    INFO(text);
    CHECK(text.find("rank 1: also made a mistake: F30\n") != std::string::npos);
    CHECK(text.find("rank 2: ended with an error: no\n") != std::string::npos);
    CHECK(text.find("rank 3: has ended\n") != std::string::npos);
}

TEST_CASE("if two messages differ at one time, the first launched is reported",
          "[sim][errors]") {
    const Diagnosis found = fault_of(3, [](Rank& rank) {
        if (rank.index() == 0)
            rank.world()
                .group()
                .send(floats(rank, 8), 2)
                .send(floats(rank, 8), 1)
                .start()
                .wait();
        else
            rank.world().recv(floats(rank, 4), 0).wait();
    });
    CHECK(found.fault == "F09");
    CHECK(found.sentence.find("rank 2 receives") != std::string::npos);
}

TEST_CASE("leftovers of groups made at one time are always reported in the same order",
          "[sim][errors]") {
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        const auto half = rank.world().split(rank.index() / 2, 0, "half");
        const auto same = half->split(0, 0, "same");
        if (rank.index() % 2 == 0) (void)same->all_reduce(floats(rank, 8));
    });
    CHECK(found.fault == "F07");
    CHECK(found.members == std::vector<int>{0, 1});
}

TEST_CASE("two collectives on one buffer end in virtual order", "[sim][determinism]") {
    std::set<double> values;
    in_every_world(
        3,
        [](Rank& rank) {
            const int me = rank.index();
            const auto left = rank.world().split(me < 2 ? 0 : -1, 0, "left");
            const auto right = rank.world().split(me != 1 ? 0 : -1, 0, "right");
            const Tensor x = floats(rank, 4, me + 1);
            if (me == 0) {
                Work first = left->all_reduce(x, Reduction::product);
                Work second = right->all_reduce(x);
                first.wait();
                second.wait();
            } else if (me == 1) {
                left->all_reduce(x, Reduction::product).wait();
            } else {
                right->all_reduce(x).wait();
            }
            rank.keep("x", x);
        },
        [&](const RunReport& report) {
            values.insert(report.ranks[0].kept.at("x").at(0));
        },
        sim::CheckLevel::cheap);  // full checking would find the program's race
    CHECK(values == std::set<double>{1 * 2 + 3});
}

TEST_CASE("a blocked operation is reported with the one that blocks it",
          "[sim][errors]") {
    const Diagnosis found = fault_of(3, [](Rank& rank) {
        const Tensor x = floats(rank, 4);
        if (rank.index() == 0) rank.world().recv(x, 1).wait();
        if (rank.index() != 1) return;
        (void)rank.world().send(x, 2);  // rank 2 does not receive this message
        (void)rank.world().send(x, 0);
    });
    CHECK(found.fault == "F10");
    CHECK(found.sentence.find("rank 1 waits in send(4 x f32, to rank 2)") !=
          std::string::npos);
    CHECK(found.sentence.find("for rank 2, which has ended") != std::string::npos);
}

TEST_CASE("a group's collective does not wait for the group's messages", "[sim][time]") {
    std::set<Picoseconds> makespans;
    for (const int free_steps : {0, 3}) {
        const RunReport report = sim::make_cluster(3)->run([=](Rank& rank) {
            const auto alone = rank.world().split(rank.index(), 0, "alone");
            const Tensor x = rank.device().empty({100'000}, DType::f32);
            const Tensor y = rank.device().empty({4}, DType::f32);
            for (int i = 0; rank.index() == 2 && i < free_steps; ++i)
                alone->barrier().wait();
            Group group = rank.world().group();
            if (rank.index() == 0) group.send(x, 1);
            if (rank.index() == 1) group.recv(x, 0);
            group.all_reduce(y);
            group.start().wait();
        });
        makespans.insert(report.makespan());
    }
    CHECK(makespans == std::set<Picoseconds>{41'000'000});
}

TEST_CASE("another rank's device is refused", "[sim][errors]") {
    static Device* other = nullptr;
    static Tensor theirs;
    throws_with(
        2,
        [](Rank& rank) {
            if (rank.index() == 0) {
                other = &rank.device();
                theirs = floats(rank, 8);
            }
            rank.world().barrier().wait();
            if (rank.index() == 1) other->fill(theirs, 1);
        },
        "rank 1 used device 0");
    theirs = Tensor();
}

TEST_CASE("a run may be started in a handler", "[sim]") {
    in_every_world(
        4,
        [](Rank& rank) {
            try {
                throw std::runtime_error("outer");
            } catch (const std::runtime_error&) {
                rank.world().barrier().wait();
                const RunReport inner = sim::make_cluster(2)->run([](Rank& nested) {
                    nested.keep_value("sees", std::current_exception() != nullptr);
                    nested.world().barrier().wait();
                });
                rank.keep_value("inner", inner.ranks[1].series.at("sees").front());
                CHECK_THROWS_WITH(std::rethrow_exception(std::current_exception()),
                                  "outer");
            }
        },
        [](const RunReport& report) {
            CHECK(report.ranks[3].series.at("inner").front() == 0);
        });
}

TEST_CASE("a destructor that waits does not end the process when the run fails",
          "[sim][errors]") {
    struct Waits {
        Communicator& world;
        ~Waits() { world.barrier().wait(); }
    };
    throws_with(
        2,
        [](Rank& rank) {
            if (rank.index() == 1) throw std::runtime_error("boom");
            const Waits waits{rank.world()};
            rank.world().all_reduce(floats(rank, 3)).wait();
        },
        "boom");
}

TEST_CASE("more ports than devices means one port per device", "[sim][time]") {
    sim::ClusterOptions options;
    options.ranks = 64;
    options.spec = load_cluster("classroom");
    options.spec.devices_per_node = 1;
    options.spec.network_ports = 1 << 20;
    const RunReport report = sim::make_cluster(options)->run([](Rank& rank) {
        const int partner = rank.index() ^ 1;
        const Tensor x = rank.device().empty({1000}, DType::f32);
        const Tensor y = rank.device().empty({1000}, DType::f32);
        rank.world().group().send(x, partner).recv(y, partner).start().wait();
    });
    CHECK(report.makespan() == 14'000'000);
    options.spec.devices_per_node = 0;
    CHECK_THROWS_AS(sim::make_cluster(options), UsageError);
}

TEST_CASE("a run with the largest number of ranks", "[sim][slow]") {
    sim::ClusterOptions options;
    options.ranks = sim::ClusterOptions::kMaxRanks;
    options.numbers = false;
    const RunReport report = sim::make_cluster(options)->run(
        [](Rank& rank) { rank.world().barrier().wait(); });
    CHECK(report.ranks.size() == static_cast<std::size_t>(options.ranks));
}

TEST_CASE("an unknown check level in the environment is refused when a run begins",
          "[sim][errors]") {
    const char* const before = std::getenv("LOCKSTEP_CHECK");
    const std::string kept = before == nullptr ? "" : before;
    const auto set = [](const std::string& level) {
        ::setenv("LOCKSTEP_CHECK", level.c_str(), 1);
    };
    const auto run = [] { sim::make_cluster(1)->run([](Rank&) {}); };
    for (const char* const level :
         {"Full", " full", "1", "full,F21", "full,-F16", "cheap,-F21", "full,-F21,"}) {
        set(level);
        sim::ClusterOptions options;
        CHECK_NOTHROW(sim::make_cluster(options));
        CHECK(message_of<UsageError>(run) ==
              fmt::format("LOCKSTEP_CHECK is '{}'; it may be full or cheap, or full "
                          "without classes from F21 to F29, as in full,-F21",
                          level));
        options.check = sim::CheckLevel::cheap;
        CHECK_NOTHROW(sim::make_cluster(options)->run([](Rank&) {}));
    }
    for (const char* const level : {"", "cheap", "full", "full,-F21,-F29"}) {
        set(level);
        CHECK_NOTHROW(run());
    }
    set(kept);
}

}  // namespace lockstep::test

#include <memory>
#include <vector>

#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/sim/watched.hpp"

// Communicators are destroyed too early, too late, or not on all ranks (F31).

namespace lockstep::test {

namespace {

Tensor floats(Rank& rank, std::int64_t count) {
    return rank.device().zeros({count}, DType::f32);
}

}  // namespace

TEST_CASE("a communicator may be destroyed after all its work was waited for", "[sim]") {
    correct(4, [](Rank& rank) {
        const Tensor x = floats(rank, 4);
        for (int step = 0; step < 3; ++step) {
            auto pair = rank.world().split(rank.index() / 2, 0, "pair");
            Work first = pair->all_reduce(x);
            Work then = pair->barrier();
            then.wait();
            first.wait();
            first.wait();
            pair.reset();
        }
        rank.world().barrier().wait();
    });
}

TEST_CASE("a communicator that all ranks keep is no mistake", "[sim]") {
    std::vector<std::unique_ptr<Communicator>> kept(4);
    for (World world : all_worlds()) {
        CHECK_NOTHROW(make_cluster_in(world, 4)->run([&](Rank& rank) {
            kept[static_cast<std::size_t>(rank.index())] =
                rank.world().split(rank.index() % 2, 0, "half");
        }));
    }
}

TEST_CASE("a communicator that an exception destroys is no mistake", "[sim]") {
    correct(3, [](Rank& rank) {
        try {
            const auto all = rank.world().split(0, 0, "all");
            require(rank.index() != 1, [] { return std::string("no such file"); });
        } catch (const UsageError&) {
        }
        rank.world().barrier().wait();
    });
}

TEST_CASE("F31: finished work must also be waited for", "[sim][errors]") {
    const Diagnosis found = fault_of(2, [](Rank& rank) {
        auto pair = rank.world().split(0, 0, "pair");
        Work work = pair->all_reduce(floats(rank, 4));
        rank.world().barrier().wait();  // the sum has ended by now
        rank.world().barrier().wait();
        pair.reset();
        rank.world().barrier().wait();
        work.wait();
    });
    CHECK(found.fault == "F31");
    says(found, "rank 0 destroys its communicator pair, made at ");
    says(found, "before it has waited for the ");
}

TEST_CASE("an exception that destroys communicators is the cause", "[sim][errors]") {
    for (const World& world : all_worlds()) {
        const auto run = [&] {
            make_cluster_in(world, 2)->run([](Rank& rank) {
                const auto pair = rank.world().split(0, 0, "pair");
                Work work = pair->all_reduce(floats(rank, 4));
                if (rank.index() == 1) throw std::runtime_error("disk on fire");
                work.wait();
                rank.world().barrier().wait();
            });
        };
        CHECK_THROWS_WITH(run(), "rank 1: disk on fire");
    }
}

TEST_CASE("F31: a communicator that is used after its run", "[sim][errors]") {
    std::unique_ptr<Communicator> kept;
    sim::make_cluster(1)->run(
        [&](Rank& rank) { kept = rank.world().split(0, 0, "kept"); });
    sim::make_cluster(1)->run([&](Rank& rank) {
        try {
            kept->barrier().wait();
            FAIL("it was used");
        } catch (const FaultError& error) {
            CHECK(error.diagnosis().fault == "F31");
            says(error.diagnosis(), "rank 0 used kept, made at ");
            says(error.diagnosis(), "after the run that made it was over");
        }
        rank.world().barrier().wait();
        CHECK_THROWS_AS(kept->split(0, 0), FaultError);
    });
}

}  // namespace lockstep::test

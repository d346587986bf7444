// Buffers overlap (F20), in one call or in one group.

#include <functional>

#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

Tensor floats(Rank& rank, std::int64_t count) {
    return rank.device().zeros({count}, DType::f32);
}

std::string refused(Rank& rank, const std::function<void(Communicator&)>& call) {
    try {
        call(rank.world());
    } catch (const FaultError& error) {
        CHECK(error.diagnosis().fault == "F20");
        return error.diagnosis().sentence;
    }
    return "taken";
}

}  // namespace

TEST_CASE("F20: buffers of one call overlap, but not in place", "[sim][errors]") {
    World world;
    world.check = sim::CheckLevel::cheap;
    make_cluster_in(world, 2)->run([](Rank& rank) {
        const Tensor x = floats(rank, 16);
        const auto part = [&](std::int64_t begin, std::int64_t count) {
            return x.slice(begin, count);
        };
        const int me = rank.index();
        const std::vector<std::function<void(Communicator&)>> wrong{
            [&](auto& comm) {
                (void)comm.all_reduce(part(0, 8), part(4, 8), Reduction::sum);
            },
            [&](auto& comm) { (void)comm.all_gather(part(0, 8), part(2, 4)); },
            [&](auto& comm) { (void)comm.all_gather(part(0, 8), part(4 - 4 * me, 4)); },
            [&](auto& comm) {
                (void)comm.reduce_scatter(part(4 - 4 * me, 4), part(0, 8));
            },
            [&](auto& comm) { (void)comm.all_to_all(part(0, 8), part(1, 8)); },
            [&](auto& comm) {
                if (me == 1)
                    (void)comm.gather(part(0, 8), part(0, 4), 1);
                else
                    (void)comm.scatter(part(4, 4), part(0, 8), 0);
            },
        };
        for (const auto& call : wrong)
            CHECK(refused(rank, call).find("elements ") != std::string::npos);
        rank.world().all_gather(part(0, 8), part(4 * me, 4)).wait();
        rank.world().reduce_scatter(part(4 * me, 4), part(0, 8)).wait();
        rank.world().all_gather(part(0, 8), part(8, 4)).wait();
        rank.world().all_to_all(part(0, 8), part(0, 8)).wait();
        rank.world().gather(part(0, 8), part(4 * me, 4), 1).wait();
        rank.world().scatter(part(4 * me, 4), part(0, 8), 0).wait();
        rank.world().all_gather(part(0, 0), part(0, 0)).wait();
    });
}

TEST_CASE("F20: operations of one group share memory that is written", "[sim][errors]") {
    World world;
    world.check = sim::CheckLevel::cheap;
    make_cluster_in(world, 2)->run([](Rank& rank) {
        const Tensor x = floats(rank, 16);
        const Tensor y = floats(rank, 16);
        const int other = 1 - rank.index();
        const std::vector<std::function<void(Communicator&)>> wrong{
            [&](auto& comm) {
                comm.group().send(x, other).recv(x, other).start().wait();
            },
            [&](auto& comm) {
                comm.group()
                    .recv(x.slice(0, 8), other)
                    .recv(x.slice(7, 8), other)
                    .start()
                    .wait();
            },
            [&](auto& comm) {
                comm.group().all_reduce(x).send(x.slice(15, 1), other).start().wait();
            },
            [&](auto& comm) {
                comm.group().broadcast(x, 0).broadcast(x, 1).start().wait();
            },
        };
        for (const auto& call : wrong)
            CHECK(refused(rank, call).find("in one group rank ") != std::string::npos);

        // Correct: blocks in any order, and two sends that read the same memory.
        const Tensor z = floats(rank, 64);
        Group group = rank.world().group();
        for (const int block : {3, 2, 0, 1})
            group.send(x.slice(4 * block, 4), other)
                .recv(y.slice(4 * block, 4), other)
                .send(x, other)
                .recv(z.slice(16 * block, 16), other);
        group.start().wait();
    });
}

}  // namespace lockstep::test

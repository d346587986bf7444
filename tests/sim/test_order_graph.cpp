#include "src/comm/mesh.hpp"
#include "tests/catch.hpp"
#include "tests/sim/watched.hpp"

// The order in which ranks launch on several communicators (F12). A consistent order is
// accepted, however asynchronous it is.

namespace lockstep::test {

namespace {

Diagnosis found_in_full(int ranks, const Program& program) {
    std::optional<Diagnosis> first;
    for (World world : all_worlds()) {
        world.check = sim::CheckLevel::full;
        try {
            make_cluster_in(world, ranks)->run(program);
            FAIL("the program was found correct");
        } catch (const FaultError& error) {
            if (!first) first = error.diagnosis();
            CHECK(error.diagnosis().text() == first->text());
        }
    }
    return *first;
}

Tensor floats(Rank& rank, std::int64_t count) {
    return rank.device().zeros({count}, DType::f32);
}

}  // namespace

TEST_CASE("a pipeline with data parallelism, overlapped, is in order", "[sim]") {
    correct(8, [](Rank& rank) {
        const Mesh mesh(rank.world(), {{"pp", 4}, {"dp", 2}});
        const int stage = mesh.coordinate("pp");
        std::vector<Tensor> buffers;
        std::vector<Work> works;
        const auto buffer = [&] { return buffers.emplace_back(floats(rank, 8)); };
        for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
            if (stage > 0) mesh["pp"].recv(buffer(), stage - 1).wait();
            if (stage < 3) works.push_back(mesh["pp"].send(buffer(), stage + 1));
        }
        for (int micro_batch = 0; micro_batch < 3; ++micro_batch) {
            if (stage < 3) mesh["pp"].recv(buffer(), stage + 1).wait();
            if (stage > 0) works.push_back(mesh["pp"].send(buffer(), stage - 1));
            works.push_back(mesh["dp"].all_reduce(buffer()));
        }
        for (Work& work : works)
            work.wait();
        rank.world().all_reduce(buffer()).wait();
    });
}

TEST_CASE("buckets on a second communicator, between other collectives", "[sim]") {
    correct(4, [](Rank& rank) {
        const auto buckets = rank.world().split(0, -rank.index(), "buckets");
        std::vector<Tensor> tensors;
        for (int i = 0; i < 8; ++i)
            tensors.push_back(floats(rank, 16));
        std::vector<Work> works;
        for (std::size_t i = 0; i < tensors.size(); ++i) {
            Communicator& comm = i % 3 == 1 ? rank.world() : *buckets;
            works.push_back(comm.all_reduce(tensors[i]));
        }
        while (!works.empty()) {  // waits in reverse order
            works.back().wait();
            works.pop_back();
        }
    });
}

TEST_CASE("communicators that overlap in one rank each are in order", "[sim]") {
    correct(3, [](Rank& rank) {
        const int me = rank.index();
        const auto left = rank.world().split(me < 2 ? 0 : -1, 0, "left");
        const auto right = rank.world().split(me != 1 ? 0 : -1, 0, "right");
        const Tensor x = floats(rank, 4);
        const Tensor y = floats(rank, 4);
        std::vector<Work> works;
        if (right) works.push_back(right->all_reduce(x));
        if (left) works.push_back(left->all_reduce(y));
        for (Work& work : works)
            work.wait();
    });
}

TEST_CASE("groups, messages to oneself and all_to_all_v are in order", "[sim]") {
    correct(4, [](Rank& rank) {
        const auto second = rank.world().split(0, 0, "second");
        const Tensor a = floats(rank, 4);
        const Tensor b = floats(rank, 4);
        const Tensor c = floats(rank, 4);
        const Tensor d = floats(rank, 4);
        const Tensor e = floats(rank, 4);
        const int right = (rank.index() + 1) % 4;
        const int left = (rank.index() + 3) % 4;
        Work ring = rank.world()
                        .group()
                        .send(a, right)
                        .recv(b, left)
                        .recv(c, right)
                        .send(a, left)
                        .start();
        Work parts = second->all_to_all_v(d, {1, 1, 1, 1}, e, {1, 1, 1, 1});
        ring.wait();
        parts.wait();
        rank.world().group().send(a, rank.index()).recv(b, rank.index()).start().wait();
    });
}

TEST_CASE("F12: a send that is started before a collective, its recv after it",
          "[sim][errors]") {
    const Diagnosis found = found_in_full(4, [](Rank& rank) {
        const auto logs = rank.world().split(0, rank.index(), "logs");
        const Tensor x = floats(rank, 4);
        const Tensor y = floats(rank, 1);
        if (rank.index() == 2) {
            Work sent = logs->send(y, 0);
            rank.world().all_reduce(x).wait();
            sent.wait();
            return;
        }
        rank.world().all_reduce(x).wait();
        if (rank.index() == 0) logs->recv(y, 2).wait();
    });
    CHECK(found.fault == "F12");
    const std::string text = found.text(1000);
    INFO(text);
    CHECK(text.find("rank 0 launches all_reduce(sum, 4 x f32) #1 of world at ") !=
          std::string::npos);
    CHECK(text.find("but rank 2 launches send(1 x f32, to rank 0 (0 of logs))") !=
          std::string::npos);
    CHECK(found.communicator == "world and logs");
}

TEST_CASE("F12: an order that changes from the second step on", "[sim][errors]") {
    const Diagnosis found = fault_of(2, [](Rank& rank) {
        const auto one = rank.world().split(0, rank.index(), "one");
        const auto two = rank.world().split(0, rank.index(), "two");
        for (int step = 0; step < 3; ++step) {
            const bool turned = step > 0 && rank.index() == 1;
            (turned ? two : one)->all_reduce(floats(rank, 4)).wait();
            if (turned)
                one->all_reduce(floats(rank, 4)).wait();
            else
                two->all_reduce(floats(rank, 4)).wait();
        }
    });
    CHECK(found.fault == "F12");
}

TEST_CASE("F12: a split is a collective of the communicator that it splits",
          "[sim][errors]") {
    const Diagnosis found = found_in_full(2, [](Rank& rank) {
        const auto other = rank.world().split(0, 0, "other");
        const Tensor x = floats(rank, 4);
        if (rank.index() == 0) {
            Work work = other->all_reduce(x);
            const auto third = rank.world().split(0, 0, "third");
            work.wait();
        } else {
            const auto third = rank.world().split(0, 0, "third");
            other->all_reduce(x).wait();
        }
    });
    CHECK(found.fault == "F12");
}

TEST_CASE("F12: is found before the end of a long run", "[sim][errors]") {
    int most = 0;
    World world;
    world.check = sim::CheckLevel::full;
    const auto run = [&] {
        make_cluster_in(world, 2)->run([&](Rank& rank) {
            const auto other = rank.world().split(0, 0, "other");
            const Tensor x = floats(rank, 1);
            const Tensor y = floats(rank, 1);
            for (int step = 0; step < 100'000; ++step) {
                most = std::max(most, step);
                const bool turned = rank.index() == 1 && step == 10;
                Work first = (turned ? *other : rank.world()).all_reduce(turned ? y : x);
                Work then = (turned ? rank.world() : *other).all_reduce(turned ? x : y);
                first.wait();
                then.wait();
            }
        });
    };
    CHECK_THROWS_AS(run(), FaultError);
    CHECK(most < 10'000);
}

TEST_CASE("without --check full such a run passes", "[sim]") {
    World world;
    world.check = sim::CheckLevel::cheap;
    CHECK_NOTHROW(make_cluster_in(world, 2)->run([](Rank& rank) {
        const auto other = rank.world().split(0, 0, "other");
        const Tensor x = floats(rank, 1);
        const Tensor y = floats(rank, 1);
        Communicator& one = rank.index() == 0 ? rank.world() : *other;
        Communicator& two = rank.index() == 0 ? *other : rank.world();
        Work first = one.all_reduce(x);
        Work then = two.all_reduce(y);
        first.wait();
        then.wait();
    }));
}

}  // namespace lockstep::test

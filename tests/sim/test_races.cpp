#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

// Races between communication and other work of a rank (F16 to F18), and communication
// without a wait (F19). Correct programs that look similar pass.

namespace lockstep::test {

namespace {

Tensor floats(Rank& rank, std::int64_t count, double value = 0) {
    const Tensor tensor = rank.device().empty({count}, DType::f32);
    rank.device().fill(tensor, value);
    return tensor;
}

std::vector<World> full_worlds() {
    std::vector<World> worlds = all_worlds();
    for (World& world : worlds)
        world.check = sim::CheckLevel::full;
    return worlds;
}

/// Returns the mistake that is found in a program; it is the same in every world.
Diagnosis race_of(int ranks, const Program& program) {
    std::optional<Diagnosis> first;
    for (const World& world : full_worlds()) {
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

void correct(int ranks, const Program& program) {
    for (const World& world : full_worlds())
        CHECK_NOTHROW(make_cluster_in(world, ranks)->run(program));
    CHECK_NOTHROW(make_cluster_in(World{}, ranks)->run(program));
}

}  // namespace

// Programs without a race.

TEST_CASE("a sent buffer may be read, and a buffer not in flight may be written",
          "[sim][races]") {
    correct(2, [](Rank& rank) {
        const Tensor x = floats(rank, 8, rank.index() + 1);
        const Tensor y = floats(rank, 8);
        const int other = 1 - rank.index();
        const Tensor halves = floats(rank, 16);
        Work work = rank.world()
                        .group()
                        .send(x, other)
                        .send(halves.slice(0, 8), other)
                        .recv(y, other)
                        .recv(halves.slice(8, 8), other)
                        .start();
        rank.device().add(floats(rank, 8), x);
        rank.keep("x", x);
        rank.device().copy(floats(rank, 8), halves.slice(0, 8));
        work.wait();
        rank.device().fill(x, 3);
        rank.keep("y", y);
    });
}

TEST_CASE("a communicator's queue keeps its operations in order", "[sim][races]") {
    for (const World& world : full_worlds()) {
        const RunReport report = make_cluster_in(world, 3)->run([](Rank& rank) {
            const Tensor x = floats(rank, 8, rank.index() + 1);
            // Rank 0's value moves along the line: each rank sends what it has received.
            std::vector<Work> works;
            if (rank.index() > 0) works.push_back(rank.world().recv(x, rank.index() - 1));
            if (rank.index() < 2) works.push_back(rank.world().send(x, rank.index() + 1));
            works.push_back(rank.world().all_reduce(x));
            works.push_back(rank.world().all_reduce(x));
            works.back().wait();
            rank.keep("x", x);
        });
        CHECK(report.ranks[1].kept.at("x").at(5) == 9);
    }
}

TEST_CASE("a wait for an operation also waits for all earlier ones", "[sim][races]") {
    correct(4, [](Rank& rank) {
        const Tensor x = floats(rank, 8);
        const Tensor y = floats(rank, 8);
        Work first = rank.world().all_reduce(x);
        Work second = rank.world().all_reduce(y);
        second.wait();
        rank.device().add(x, y);
        rank.keep("x", x);
    });
}

TEST_CASE("an answer shows that its message has been read", "[sim][races]") {
    correct(2, [](Rank& rank) {
        const auto answers = rank.world().split(0, rank.index(), "answers");
        const Tensor x = floats(rank, 8);
        const Tensor answer = floats(rank, 1);
        if (rank.index() == 0) {
            Work question = rank.world().send(x, 1);
            answers->recv(answer, 1).wait();
            rank.device().fill(x, 1);
            question.wait();
        } else {
            rank.world().recv(x, 0).wait();
            answers->send(answer, 0).wait();
        }
    });
}

TEST_CASE("a third rank's answer also shows that a message was read", "[sim][races]") {
    correct(3, [](Rank& rank) {
        const auto others = rank.world().split(0, rank.index(), "others");
        const Tensor x = floats(rank, 8);
        const Tensor token = floats(rank, 1);
        if (rank.index() == 0) {
            Work question = rank.world().send(x, 1);
            others->recv(token, 2).wait();
            rank.device().fill(x, 1);
            question.wait();
        } else if (rank.index() == 1) {
            rank.world().recv(x, 0).wait();
            others->send(token, 2).wait();
        } else {
            others->recv(token, 1).wait();
            others->send(token, 0).wait();
        }
    });
}

TEST_CASE("a barrier after all recvs shows that messages were read", "[sim][races]") {
    correct(4, [](Rank& rank) {
        const auto control = rank.world().split(0, rank.index(), "control");
        const Tensor x = floats(rank, 8);
        std::vector<Work> sends;
        for (int to = 1; rank.index() == 0 && to < 4; ++to)
            sends.push_back(rank.world().send(x, to));
        if (rank.index() > 0) rank.world().recv(x, 0).wait();
        control->barrier().wait();
        rank.device().fill(x, 1);
        for (Work& send : sends)
            send.wait();
    });
}

TEST_CASE("temporaries that live until wait returns are kept long enough",
          "[sim][races]") {
    correct(2, [](Rank& rank) {
        const int other = 1 - rank.index();
        rank.world().all_reduce(floats(rank, 8)).wait();
        rank.world().all_gather(floats(rank, 16), floats(rank, 8)).wait();
        rank.world()
            .group()
            .send(floats(rank, 2), other)
            .recv(floats(rank, 4).slice(1, 2), other)
            .recv(floats(rank, 2), other)
            .send(floats(rank, 2), other)
            .start()
            .wait();
        // A view of any part keeps the whole storage alive.
        Tensor whole = floats(rank, 8);
        const Tensor rest = whole.slice(6, 2);
        Work work = rank.world().all_reduce(whole.slice(0, 4));
        whole = Tensor();
        work.wait();
    });
}

TEST_CASE("several operations may read one buffer, which is released after the last wait",
          "[sim][races]") {
    correct(4, [](Rank& rank) {
        const auto twin = rank.world().split(0, rank.index(), "twin");
        const Tensor sum = floats(rank, 8);
        Tensor x = floats(rank, 8);
        const Tensor gathered = floats(rank, 32);
        Work one = rank.world().all_reduce(sum, x, Reduction::sum);
        Work two = twin->all_gather(gathered, x);
        one.wait();
        two.wait();
        x = Tensor();
        rank.keep("sum", sum);
    });
}

TEST_CASE("gradients are reduced while backward goes on", "[sim][races]") {
    correct(4, [](Rank& rank) {
        Device& device = rank.device();
        std::vector<Tensor> gradients;
        std::vector<Work> works;
        for (int step = 0; step < 3; ++step) {
            works.clear();
            gradients.clear();
            for (int layer = 0; layer < 5; ++layer) {
                gradients.push_back(floats(rank, 16, layer));
                works.push_back(rank.world().all_reduce(gradients.back()));
            }
            for (std::size_t layer = 0; layer < works.size(); ++layer) {
                works[layer].wait();
                device.scale(gradients[layer], 0.25);
            }
        }
    });
}

// F16, F17.

TEST_CASE("F16: received data are copied to the host too early", "[sim][races]") {
    const Diagnosis found = race_of(2, [](Rank& rank) {
        const Tensor x = floats(rank, 8);
        Work work = rank.world().broadcast(x, 1);
        if (rank.index() == 0) rank.keep("x", x);
        work.wait();
    });
    CHECK(found.fault == "F16");
    CHECK(found.parties.size() == 2);
    CHECK(found.sentence.find("a copy to the host") != std::string::npos);
}

TEST_CASE("F17: the root of a broadcast may read, but not write", "[sim][races]") {
    const auto program = [](bool writes) {
        return [=](Rank& rank) {
            const Tensor x = floats(rank, 8);
            Work work = rank.world().broadcast(x, 0);
            if (rank.index() == 0) rank.keep("x", x);
            if (rank.index() == 0 && writes)
                rank.device().upload_into(x, HostTensor({8}, DType::f32));
            work.wait();
        };
    };
    correct(3, program(false));
    CHECK(race_of(3, program(true)).fault == "F17");
}

TEST_CASE("F17: an answer to another message shows nothing", "[sim][races]") {
    const Diagnosis found = race_of(3, [](Rank& rank) {
        const auto answers = rank.world().split(0, rank.index(), "answers");
        const Tensor x = floats(rank, 8);
        const Tensor y = floats(rank, 8);
        const Tensor answer = floats(rank, 1);
        if (rank.index() == 0) {
            Work sends = rank.world().group().send(x, 1).send(y, 2).start();
            answers->recv(answer, 1).wait();
            rank.device().fill(x, 1);  // rank 1 has received x
            rank.device().fill(y, 1);  // rank 2 may not have received y
            sends.wait();
        } else {
            rank.world().recv(x, 0).wait();
            if (rank.index() == 1) answers->send(answer, 0).wait();
        }
    });
    CHECK(found.fault == "F17");
    CHECK(found.sentence.find("to rank 2") != std::string::npos);
}

TEST_CASE("F16: an answer shows nothing about received data", "[sim][races]") {
    const Diagnosis found = race_of(2, [](Rank& rank) {
        const auto answers = rank.world().split(0, rank.index(), "answers");
        const Tensor x = floats(rank, 8);
        const Tensor answer = floats(rank, 1);
        if (rank.index() == 0) {
            Work coming = rank.world().recv(x, 1);
            answers->recv(answer, 1).wait();
            rank.keep("x", x);
            coming.wait();
        } else {
            rank.world().send(x, 0).wait();
            answers->send(answer, 0).wait();
        }
    });
    CHECK(found.fault == "F16");
}

TEST_CASE("F16: two communicators use one buffer at one time", "[sim][races]") {
    const Diagnosis found = race_of(2, [](Rank& rank) {
        const auto other = rank.world().split(0, rank.index(), "other");
        const Tensor x = floats(rank, 8);
        Work first = rank.world().all_reduce(x);
        Work second = other->all_reduce(x);
        first.wait();
        second.wait();
    });
    CHECK(found.fault == "F16");
    CHECK(found.sentence.find("of other") != std::string::npos);
}

// Programs that read or write memory by data(), which the device cannot see.

TEST_CASE("data without a wait have not arrived", "[sim][races]") {
    World world;
    world.check = sim::CheckLevel::full;
    const RunReport report = make_cluster_in(world, 2)->run([](Rank& rank) {
        const auto other = rank.world().split(0, rank.index(), "other");
        const Tensor x = floats(rank, 4, rank.index() + 1);
        const Tensor sum = floats(rank, 4, 7);
        Work work = rank.world().all_reduce(sum, x, Reduction::sum);
        rank.keep_value("early", sum.data<float>()[2] == 3);
        other->barrier().wait();  // the sum has arrived long ago
        rank.keep_value("later", sum.data<float>()[2] == 3);
        work.wait();
        rank.keep_value("then", sum.data<float>()[2] == 3);
    });
    CHECK(report.ranks[0].series.at("early").front() == 0);
    CHECK(report.ranks[0].series.at("later").front() == 0);
    CHECK(report.ranks[0].series.at("then").front() == 1);
}

TEST_CASE("F17: a write that bypasses the device is found", "[sim][races]") {
    for (const bool after_arrival : {false, true}) {
        const Diagnosis found = race_of(2, [=](Rank& rank) {
            const auto other = rank.world().split(0, rank.index(), "other");
            const Tensor x = floats(rank, 4);
            const Tensor y = floats(rank, 4);
            const int peer = 1 - rank.index();
            Work work = rank.world().group().send(x, peer).recv(y, peer).start();
            if (after_arrival) other->barrier().wait();
            if (rank.index() == 1) x.data<float>()[3] = 5;
            work.wait();
        });
        CHECK(found.fault == "F17");
        CHECK(found.parties.front().ranks == std::vector<int>{1});
        CHECK(found.sentence.find("data()") != std::string::npos);
    }
}

// F18.

TEST_CASE("F18: a temporary is freed before the wait", "[sim][races]") {
    const Diagnosis found = race_of(2, [](Rank& rank) {
        Work work = rank.world().all_reduce(floats(rank, 8));
        work.wait();
    });
    CHECK(found.fault == "F18");
    CHECK(found.parties.size() == 2);
}

TEST_CASE("F18 in a destructor is no crash", "[sim][races]") {
    struct Sending {
        Work work;
        ~Sending() { work.wait(); }
    };
    const Diagnosis found = race_of(2, [](Rank& rank) {
        const Sending sending{rank.world().all_reduce(floats(rank, 8))};
    });
    CHECK(found.fault == "F18");
}

// F19.

TEST_CASE("F19: work without a wait is counted by line", "[sim][races]") {
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        const auto half = rank.world().split(rank.index() / 2, 0, "half");
        const Tensor x = floats(rank, 8);
        std::vector<Work> works;
        for (int i = 0; i < 3; ++i)
            works.push_back(half->all_reduce(x));
        works[static_cast<std::size_t>(rank.index() < 3 ? 2 : 0)].wait();
        if (rank.index() == 1) works.push_back(half->barrier());
        if (rank.index() == 0) half->barrier().wait();
    });
    CHECK(found.fault == "F19");
    REQUIRE(found.parties.size() == 2);
    CHECK(found.parties[0].ranks == std::vector<int>{1});
    CHECK(found.parties[1].ranks == std::vector<int>{3});
    CHECK(found.sentence.find("3 such launches") != std::string::npos);
}

TEST_CASE("F19 is reported after mistakes that stop the run", "[sim][races]") {
    const Diagnosis found = fault_of(2, [](Rank& rank) {
        const Tensor x = floats(rank, 8);
        const auto other = rank.world().split(0, rank.index(), "other");
        std::vector<Work> works;
        works.push_back(other->all_reduce(x));
        const Tensor y = floats(rank, 8);
        if (rank.index() == 0) works.push_back(rank.world().send(y, 1));
    });
    CHECK(found.fault == "F10");
}

TEST_CASE("an empty group need not be waited for", "[sim][races]") {
    correct(2, [](Rank& rank) {
        Work work = rank.world().group().start();
        rank.world().barrier().wait();
    });
}

}  // namespace lockstep::test

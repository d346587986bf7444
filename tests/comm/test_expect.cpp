// Tests what a strategy's own code asserts: replicas are equal, and the bytes sent are
// those of the formula. First uses the simulator's own method; then only the verbs, which
// any other backend uses.

#include <limits>

#include "sim/cluster.hpp"
#include "src/comm/expect.hpp"
#include "src/comm/rank.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

/// A backend that has only the verbs: passes all calls to another communicator.
class VerbsOnly final : public Communicator {
  public:
    VerbsOnly(Device& device, Communicator& inner)
        : Communicator(device, inner.name(), inner.rank(), inner.size()), inner_(inner) {}

  private:
    Work do_launch(std::span<CommOperation> operations, SourceLine at) override {
        const CommOperation& asked = operations.front();
        if (asked.verb == Verb::all_gather)
            return inner_.all_gather(asked.output, asked.input, at);
        REQUIRE(asked.verb == Verb::broadcast);
        return inner_.broadcast(asked.output, asked.peer, at);
    }
    std::unique_ptr<Communicator> do_split(const SplitRequest& request,
                                           SourceLine at) override {
        return inner_.split(request, at);
    }
    BytesByVerb do_bytes_sent(SourceLine at) const override {
        return inner_.bytes_sent(at);
    }

    Communicator& inner_;
};

int here = 0;

std::string line(int number) {
    return "tests/comm/test_expect.cpp:" + std::to_string(number);
}

void check_says(const std::string& text, const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        INFO("'" << word << "' in: " << text);
        CHECK(text.find(word) != std::string::npos);
    }
}

/// A tensor that is the same on all ranks, except element (1, 2) of rank 2.
Tensor nearly_replicated(Rank& rank, DType dtype = DType::f32) {
    HostTensor values(Shape{3, 4}, dtype);
    for (std::int64_t i = 0; i < 12; ++i)
        values.set(i, static_cast<double>(i));
    if (rank.index() == 2) values.set(6, 7.5);
    return rank.device().upload(values);
}

template <typename Body>
Diagnosis found_by_verbs(int ranks, Body body) {
    try {
        sim::make_cluster(ranks)->run([&](Rank& rank) {
            VerbsOnly world(rank.device(), rank.world());
            body(rank, world);
        });
    } catch (const FaultError& fault) {
        return fault.diagnosis();
    }
    FAIL("the program was found correct");
    return {};
}

}  // namespace

TEST_CASE("a tensor that is no replica: ranks, element and both values",
          "[sim][comm][errors]") {
    const auto check = [](const Diagnosis& found) {
        CHECK(found.fault == "F24");
        REQUIRE(found.parties.size() == 2);
        CHECK(found.parties[0].ranks == std::vector<int>{0, 1, 3});
        CHECK(found.parties[1].ranks == std::vector<int>{2});
        CHECK(found.members == std::vector<int>{0, 1, 2, 3});
        check_says(found.sentence,
                   {"hidden.weight", "world", "rank 2", "7.5", "element [1, 2]",
                    "ranks 0–1, 3", " 6 ", line(here), "1 of 12 elements"});
    };
    check(fault_of(4, [](Rank& rank) {
        here = __LINE__ + 1;
        expect_replicated(rank.world(), nearly_replicated(rank), "hidden.weight");
        rank.world().barrier().wait();
    }));
    check(found_by_verbs(4, [](Rank& rank, Communicator& world) {
        here = __LINE__ + 1;
        expect_replicated(world, nearly_replicated(rank), "hidden.weight");
    }));
}

TEST_CASE("replicas of different shapes are reported", "[sim][comm][errors]") {
    const auto weight = [](Rank& rank) {
        return rank.device().zeros({rank.index() == 0 ? 4 : 8}, DType::f32);
    };
    const auto check = [](const Diagnosis& found) {
        CHECK(found.fault == "F24");
        check_says(found.sentence, {"rank 0 holds (4) f32", "ranks 1–2 hold (8) f32"});
    };
    check(
        fault_of(3, [&](Rank& rank) { expect_replicated(rank.world(), weight(rank)); }));
    check(found_by_verbs(3, [&](Rank& rank, Communicator& world) {
        expect_replicated(world, weight(rank));
    }));
}

TEST_CASE("replicas are compared by their bits", "[sim][comm]") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const auto program = [&](Rank& rank, Communicator& world) {
        for (const DType dtype : {DType::f32, DType::f64}) {
            const Tensor x = rank.device().zeros({3}, dtype);
            rank.device().fill(x, nan);
            expect_replicated(world, x, "NaN");
            expect_replicated(world, rank.device().zeros({0}, dtype), "nothing");
            expect_replicated(world, rank.device().zeros({}, dtype), "a scalar");
        }
        expect_replicated(world, rank.device().zeros({5}, DType::i32));
    };
    sim::make_cluster(3)->run([&](Rank& rank) {
        program(rank, rank.world());
        VerbsOnly world(rank.device(), rank.world());
        program(rank, world);
    });
    const Diagnosis signs = fault_of(2, [](Rank& rank) {
        const Tensor x = rank.device().zeros({3}, DType::f32);
        if (rank.index() == 1) rank.device().scale(x, -1);
        expect_replicated(rank.world(), x, "zeros");
    });
    check_says(signs.sentence, {"-0", "3 of 3"});
}

TEST_CASE("asking whether a tensor is replicated costs no time and no bytes",
          "[sim][comm]") {
    const auto run = [](bool asks, bool numbers) {
        sim::ClusterOptions options = options_of(World{}, 4);
        options.numbers = numbers;
        return sim::make_cluster(options)->run([&](Rank& rank) {
            const Tensor x = rank.device().zeros({64}, DType::f32);
            if (asks) expect_replicated(rank.world(), x);
            rank.world().all_reduce(x).wait();
            const auto half = rank.world().split(rank.index() % 2, 0, "half");
            if (asks && rank.index() % 2 == 0) expect_replicated(*half, x);
        });
    };
    for (const bool numbers : {true, false}) {
        const RunReport plain = run(false, numbers);
        const RunReport asked = run(true, numbers);
        for (std::size_t rank = 0; rank < 4; ++rank) {
            CHECK(asked.ranks[rank].time.end == plain.ranks[rank].time.end);
            CHECK(asked.ranks[rank].memory.peak == plain.ranks[rank].memory.peak);
            CHECK(asked.ranks[rank].traffic.size() == plain.ranks[rank].traffic.size());
        }
    }
}

TEST_CASE("a rank that does not ask is reported as missing", "[sim][comm][errors]") {
    const Diagnosis found = fault_of(3, [](Rank& rank) {
        const Tensor x = rank.device().zeros({4}, DType::f32);
        here = __LINE__ + 1;
        if (rank.index() != 1) expect_replicated(rank.world(), x, "weight");
    });
    CHECK(found.fault == "F07");
    check_says(found.sentence, {"ranks 0, 2", "weight", line(here), "rank 1", "ended"});
}

TEST_CASE("an empty tensor is refused", "[sim][comm][errors]") {
    sim::make_cluster(2)->run([](Rank& rank) {
        CHECK_THROWS_AS(expect_replicated(rank.world(), Tensor()), UsageError);
    });
}

TEST_CASE("bytes sent are counted by verb", "[sim][comm]") {
    for (const bool numbers : {true, false}) {
        sim::ClusterOptions options = options_of(World{}, 4);
        options.numbers = numbers;
        sim::make_cluster(options)->run([](Rank& rank) {
            Communicator& world = rank.world();
            const Tensor x = rank.device().zeros({64}, DType::f32);
            world.all_reduce(x).wait();
            const ByteCount sent(world);
            expect_bytes(sent, 0);
            world.all_reduce(x).wait();
            expect_bytes(sent, 2 * 3 * x.bytes() / 4);
            if (rank.index() == 0) world.send(x, 1).wait();
            if (rank.index() == 1) world.recv(x, 0).wait();
            CHECK(sent.by_verb()[static_cast<std::size_t>(Verb::send)] ==
                  (rank.index() == 0 ? x.bytes() : 0));
            expect_bytes(sent,
                         2 * 3 * x.bytes() / 4 + (rank.index() == 0 ? x.bytes() : 0));
        });
    }
}

TEST_CASE("a wrong number of bytes is reported with both numbers, the verbs and the line",
          "[sim][comm][errors]") {
    const Diagnosis found = fault_of(4, [](Rank& rank) {
        Communicator& world = rank.world();
        const Tensor x = rank.device().zeros({64}, DType::f32);
        const ByteCount sent(world);
        for (int micro_batch = 0; micro_batch < 2; ++micro_batch)
            world.all_reduce(x).wait();
        here = __LINE__ + 1;
        expect_bytes(sent, 2 * 3 * x.bytes() / 4);
    });
    CHECK(found.fault == "F27");
    CHECK(found.title == "more bytes than expected");
    check_says(found.sentence, {"rank 0", "768", "384", "384 more", "768 by all_reduce",
                                line(here), line(here - 4)});
}

TEST_CASE("bytes are not counted while an operation is in flight",
          "[sim][comm][errors]") {
    sim::make_cluster(2)->run([](Rank& rank) {
        const Tensor x = rank.device().zeros({64}, DType::f32);
        const ByteCount sent(rank.world());
        Work reduced = rank.world().all_reduce(x);
        CHECK_THROWS_AS(expect_bytes(sent, 256), UsageError);
        reduced.wait();
        expect_bytes(sent, 256);
    });
}

TEST_CASE("unequal batches that must be equal are reported, on a device and on the host",
          "[sim][comm][errors]") {
    const auto found = [](const Program& program) {
        World world;
        world.check = sim::CheckLevel::full;
        try {
            make_cluster_in(world, 4)->run(program);
        } catch (const FaultError& fault) {
            return fault.diagnosis();
        }
        return Diagnosis();
    };
    const auto batch_of = [](const Rank& rank) {
        HostTensor ids({2, 2}, DType::i32);
        ids.set(3, rank.index() == 2 ? 7 : 5);
        return ids;
    };
    const Diagnosis of_tensor = found([&](Rank& rank) {
        here = __LINE__ + 1;
        const Tensor ids = rank.device().upload(batch_of(rank));
        declare_same(rank.world(), ids, "ids");
    });
    CHECK(of_tensor.fault == "F24");
    CHECK(of_tensor.title == "ranks read different data");
    check_says(
        of_tensor.sentence,
        {"the ranks of world must read the same ids", "rank 2 reads 7", "element [1, 1]",
         "(made at", line(here), "ranks 0–1, 3 read 5", "1 of 4 elements differ"});
    REQUIRE(of_tensor.parties.size() == 2);
    check_says(of_tensor.parties[0].at.text(), {line(here)});

    const Diagnosis of_values = found([&](Rank& rank) {
        here = __LINE__ + 1;
        declare_same(rank.world(), batch_of(rank), "ids");
    });
    check_says(of_values.sentence, {"rank 2 reads 7", "(given at", line(here)});

    const Diagnosis of_shapes = found([&](Rank& rank) {
        declare_same(rank.world(), HostTensor({rank.index() + 1}, DType::i32), "ids");
    });
    check_says(of_shapes.sentence, {"rank 0 reads (1) i32", "rank 1 reads (2) i32"});

    const Diagnosis of_absent = found([&](Rank& rank) {
        if (rank.index() > 0) declare_same(rank.world(), batch_of(rank), "ids");
    });
    CHECK(of_absent.fault == "F07");
    check_says(of_absent.sentence, {"declare_same(ids) #0 of world"});

    // At a lower check level there is no check.
    World cheap;
    cheap.check = sim::CheckLevel::cheap;
    make_cluster_in(cheap, 4)->run(
        [&](Rank& rank) { declare_same(rank.world(), batch_of(rank), "ids"); });
}

}  // namespace lockstep::test

// One device beside the many: what differs from it is found, and what the difference
// shows is said, and no more.

#include "src/nn/losses.hpp"
#include "tests/catch.hpp"
#include "tests/sim/worlds.hpp"

namespace lockstep::test {

namespace {

Tensor values(Rank& rank, double factor, DType dtype = DType::f64) {
    const Tensor tensor = rank.device().empty({8}, dtype);
    rank.device().random_normal(tensor, RandomStream(1, "values"), 0, 1);
    rank.device().scale(tensor, factor);
    return tensor;
}

Diagnosis found(int ranks, const Program& program, const Program& reference) {
    World world;
    world.check = sim::CheckLevel::full;
    sim::ClusterOptions options = options_of(world, ranks);
    options.reference = reference;
    try {
        sim::make_cluster(options)->run(program);
    } catch (const FaultError& error) {
        return error.diagnosis();
    }
    return {};
}

Diagnosis found_with(int ranks, double factor) {
    return found(
        ranks, [=](Rank& rank) { rank.keep("x", values(rank, factor)); },
        [](Rank& rank) { rank.keep("x", values(rank, 1)); });
}

}  // namespace

TEST_CASE("a factor of a group's size from one device is a wrong average",
          "[sim][faults]") {
    CHECK(found_with(3, 3).fault == "F21");
    CHECK(found_with(3, 1.0 / 3).fault == "F21");
    CHECK(found_with(3, 1).title.empty());
    const Diagnosis other = found_with(3, 2.5);
    CHECK(other.fault.empty());
    CHECK(other.sentence.find("2.5 times") != std::string::npos);
    CHECK(other.text().find("test_reference.cpp") != std::string::npos);
}

TEST_CASE("rounding passes beside one device, and NaN does not", "[sim][faults]") {
    const auto with = [](double change) {
        return found(
            2,
            [=](Rank& rank) {
                const Tensor x = values(rank, 1, DType::f32);
                if (rank.index() == 1) rank.device().scale(x.slice(3, 1), change);
                rank.keep("x", x);
            },
            [](Rank& rank) { rank.keep("x", values(rank, 1, DType::f32)); });
    };
    CHECK(with(1 + 1e-6).title.empty());
    CHECK(!with(std::nan("")).title.empty());
    const Diagnosis one = with(1.5);
    CHECK(one.fault.empty());
    REQUIRE(!one.parties.empty());
    CHECK(one.parties.front().ranks == std::vector<int>{1});
}

TEST_CASE("what has another name, shape or type is not compared with one device",
          "[sim][faults]") {
    const Diagnosis diagnosis = found(
        2,
        [](Rank& rank) {
            rank.keep("other", values(rank, 2));
            rank.keep("rows", values(rank, 2).slice(0, 4));
            rank.keep("x", values(rank, 2, DType::f32));
        },
        [](Rank& rank) {
            for (const char* name : {"x", "rows"})
                rank.keep(name, values(rank, 1));
        });
    CHECK(diagnosis.title.empty());
}

TEST_CASE("one device beside them costs neither virtual time nor bytes", "[sim]") {
    const auto program = [](Rank& rank) {
        const Tensor x = values(rank, 0.5);
        rank.world().all_reduce(x).wait();
        rank.keep("x", x);
    };
    World world;
    world.check = sim::CheckLevel::full;
    sim::ClusterOptions options = options_of(world, 2);
    const RunReport without = sim::make_cluster(options)->run(program);
    options.reference = [](Rank& rank) { rank.keep("x", values(rank, 1)); };
    const RunReport with = sim::make_cluster(options)->run(program);
    CHECK(with.makespan() == without.makespan());
    CHECK(with.bytes_sent() == without.bytes_sent());
}

}  // namespace lockstep::test

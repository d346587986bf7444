#include <cstdint>
#include <string>
#include <vector>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/core/require.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

void refused(int ranks, std::vector<Mesh::Axis> axes, const std::string& words) {
    sim::make_cluster(ranks)->run([&](Rank& rank) {
        try {
            const Mesh mesh(rank.world(), axes);
            FAIL("the mesh was made");
        } catch (const UsageError& error) {
            INFO(error.what());
            CHECK(std::string(error.what()).find(words) != std::string::npos);
            CHECK(std::string(error.what()).find("tests/comm/test_mesh.cpp:") == 0);
        }
    });
}

}  // namespace

TEST_CASE("the last axis of a mesh is the fastest", "[sim][comm]") {
    sim::make_cluster(16)->run([](Rank& rank) {
        const Mesh mesh(rank.world(), {{"pp", 2}, {"dp", 2}, {"tp", 4}});
        const int me = rank.index();
        CHECK(mesh.coordinate("tp") == me % 4);
        CHECK(mesh.coordinate("dp") == me / 4 % 2);
        CHECK(mesh.coordinate("pp") == me / 8);
        CHECK(mesh.size("tp") == 4);
        CHECK(mesh["pp"].size() == 2);
        CHECK(mesh["dp"].name() == "dp");
        CHECK(mesh.has("pp"));
        CHECK_FALSE(mesh.has("ep"));
        CHECK_THROWS_AS(mesh["ep"], UsageError);
        CHECK_THROWS_AS(mesh.coordinate(""), UsageError);
        const Tensor mine = rank.device().zeros({1}, DType::i32);
        const Tensor line = rank.device().zeros({2}, DType::i32);
        rank.device().fill(mine, me);
        mesh["pp"].all_gather(line, mine).wait();
        CHECK(rank.device().download(line).at(0) == me % 8);
        CHECK(rank.device().download(line).at(1) == me % 8 + 8);
    });
}

TEST_CASE("a mesh may have axes with one rank, and a single axis", "[sim][comm]") {
    sim::make_cluster(6)->run([](Rank& rank) {
        const Mesh mesh(rank.world(), {{"cp", 1}, {"dp", 6}, {"tp", 1}});
        CHECK(mesh["cp"].size() == 1);
        CHECK(mesh.coordinate("dp") == rank.index());
        const Mesh again(rank.world(), {{"ep", 6}});
        CHECK(again["ep"].size() == 6);
    });
    sim::make_cluster(1)->run([](Rank& rank) { const Mesh mesh(rank.world(), {}); });
}

TEST_CASE("impossible meshes are refused with a message", "[sim][comm][errors]") {
    refused(12, {{"pp", 2}, {"dp", 2}, {"tp", 4}},
            "the product of the sizes of pp 2 x dp 2 x tp 4 must be 12, the number of "
            "ranks of world");
    refused(4, {{"dp", 0}, {"tp", 4}}, "axis dp has size 0");
    refused(4, {{"dp", -2}, {"tp", -2}}, "axis dp has size -2");
    refused(4, {{"dp", 2}, {"dp", 2}}, "two axes dp");
    refused(4, {{"", 4}}, "has no name");
    refused(4, {}, "no axes");
    refused(4, {{"a", 1 << 30}, {"b", 1 << 30}, {"c", 1 << 30}},
            "multiply to more than 1073741824 ranks");
}

TEST_CASE("impossible counts of an all_to_all_v are refused", "[sim][comm][errors]") {
    sim::make_cluster(2)->run([](Rank& rank) {
        const Tensor x = rank.device().zeros({4}, DType::f32);
        const Tensor y = rank.device().zeros({4}, DType::f32);
        Communicator& world = rank.world();
        CHECK_THROWS_AS(world.all_to_all_v(y, {2, 2}, x, {2, 3}), UsageError);
        CHECK_THROWS_AS(world.all_to_all_v(y, {2, 2}, x, {2, 1}), UsageError);
        CHECK_THROWS_AS(world.all_to_all_v(y, {2, 2}, x, {4}), UsageError);
        CHECK_THROWS_AS(world.all_to_all_v(y, {5, -1}, x, {2, 2}), UsageError);
        CHECK_THROWS_AS(world.all_to_all_v(y, {std::int64_t{1} << 62, 4}, x, {2, 2}),
                        UsageError);
        CHECK_THROWS_AS(world.all_to_all_v(x, {2, 2}, x, {2, 2}), UsageError);
        CHECK_THROWS_AS(world.all_to_all_v(Tensor(), {2, 2}, x, {2, 2}), UsageError);
        CHECK_THROWS_AS(world.all_to_all_v(y.reshaped({2, 2}), {2, 2}, x, {2, 2}),
                        UsageError);
        world.all_to_all_v(y, {2, 2}, x, {2, 2}).wait();
    });
}

TEST_CASE("impossible members of a subgroup are refused", "[sim][comm][errors]") {
    sim::make_cluster(2)->run([](Rank& rank) {
        CHECK_THROWS_AS(rank.world().subgroup({}), UsageError);
        CHECK_THROWS_AS(rank.world().subgroup({0, 2}), UsageError);
        CHECK_THROWS_AS(rank.world().subgroup({-1}), UsageError);
        CHECK_THROWS_AS(rank.world().subgroup({1, 0, 1}), UsageError);
        const auto turned = rank.world().subgroup({1, 0}, "turned");
        CHECK(turned->rank() == 1 - rank.index());
        CHECK(turned->name() == "turned");
    });
}

}  // namespace lockstep::test

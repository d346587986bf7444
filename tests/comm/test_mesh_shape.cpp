// Compares the arithmetic of a mesh with places that are counted rank by rank.

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "src/comm/mesh_shape.hpp"
#include "tests/catch.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

using Places = std::vector<int>;

/// Returns the places of all ranks; the place on the last axis changes fastest.
std::vector<Places> counted_places(const std::vector<MeshShape::Axis>& axes) {
    std::vector<Places> all;
    Places now(axes.size());
    while (true) {
        all.push_back(now);
        std::size_t axis = axes.size();
        while (axis > 0 && ++now[axis - 1] == axes[axis - 1].size)
            now[--axis] = 0;
        if (axis == 0) return all;
    }
}

/// Returns the ranks that may differ from `rank` only in their places on these axes.
std::vector<int> counted_plane(const std::vector<Places>& places, int rank,
                               const std::set<std::size_t>& free) {
    std::vector<int> ranks;
    for (std::size_t other = 0; other < places.size(); ++other) {
        bool same = true;
        for (std::size_t axis = 0; axis < places[other].size(); ++axis)
            same = same &&
                   (free.contains(axis) ||
                    places[other][axis] == places[static_cast<std::size_t>(rank)][axis]);
        if (same) ranks.push_back(static_cast<int>(other));
    }
    return ranks;
}

void check_planes(const MeshShape& shape, const std::vector<Places>& places,
                  unsigned chosen) {
    std::vector<std::string> names;
    std::set<std::size_t> free;
    for (std::size_t axis = 0; axis < shape.axes().size(); ++axis)
        if ((chosen >> axis & 1U) != 0) {
            names.insert(names.begin(), shape.axes()[axis].name);  // in any order
            free.insert(axis);
        }
    std::set<std::vector<int>> all;
    for (int rank = 0; rank < shape.ranks(); ++rank) {
        const std::vector<int> plane = counted_plane(places, rank, free);
        REQUIRE(shape.plane(rank, names) == plane);
        if (names.size() == 1) REQUIRE(shape.line(rank, names.front()) == plane);
        all.insert(plane);
    }
    // The order is by each plane's first rank.
    CHECK(shape.planes(names) == std::vector(all.begin(), all.end()));
}

}  // namespace

TEST_CASE("places, lines and planes equal those found by counting", "[comm][mesh]") {
    std::mt19937 random(27);
    for (int i = 0; i < 60; ++i) {
        std::vector<MeshShape::Axis> axes;
        const std::size_t count = random() % 5;
        for (std::size_t axis = 0; axis < count; ++axis)
            axes.push_back(
                {"axis" + std::to_string(axis), static_cast<int>(random() % 4) + 1});
        const MeshShape shape(axes);
        CAPTURE(shape.text());
        const std::vector<Places> places = counted_places(axes);
        REQUIRE(shape.ranks() == static_cast<int>(places.size()));
        for (int rank = 0; rank < shape.ranks(); ++rank) {
            REQUIRE(shape.coordinates(rank) == places[static_cast<std::size_t>(rank)]);
            for (std::size_t axis = 0; axis < count; ++axis)
                REQUIRE(shape.coordinate(rank, axes[axis].name) ==
                        places[static_cast<std::size_t>(rank)][axis]);
        }
        for (const MeshShape::Axis& axis : axes)
            if (axis.size > 1) {
                const std::vector<int> line = shape.line(0, axis.name);
                CHECK(shape.stride(axis.name) == line[1] - line[0]);
                CHECK(shape.size(axis.name) == static_cast<int>(line.size()));
            }
        for (unsigned chosen = 0; chosen < 1U << count; ++chosen)
            check_planes(shape, places, chosen);
    }
}

TEST_CASE("a plane of an unknown axis is refused", "[comm][mesh][errors]") {
    const MeshShape shape({{"pp", 2}, {"dp", 3}});
    CHECK(refusal([&] { shape.plane(0, {"tp"}); }) ==
          "mesh: tp is no axis of pp 2 x dp 3");
    CHECK_THAT(refusal([&] {
                   shape.plane(0, {"dp", "dp"});
               }),
               says("axis dp is named twice for a plane"));
    CHECK_THAT(refusal([&] { shape.stride(""); }), says(" is no axis of pp 2 x dp 3"));
    CHECK(MeshShape({}).text() == "no axes");
    CHECK(MeshShape({}).ranks() == 1);
    CHECK(MeshShape({}).planes({}) == std::vector<std::vector<int>>{{0}});
}

TEST_CASE("a mesh is read as it is written", "[comm][mesh]") {
    CHECK(read_mesh_shape("pp=2,dp=2,tp=4") ==
          MeshShape({{"pp", 2}, {"dp", 2}, {"tp", 4}}));
    CHECK(read_mesh_shape("a-b_C9=1") == MeshShape({{"a-b_C9", 1}}));
    CHECK(read_mesh_shape("sixteen_letters_=3").ranks() == 3);
}

TEST_CASE("a text that is no mesh is refused, with what was expected",
          "[comm][mesh][errors]") {
    const auto refused = [](const std::string& text) {
        return refusal([&] { read_mesh_shape(text); });
    };
    for (const char* text : {"", "pp", "pp=", "=", "pp=2,", ",pp=2", "pp=2,,dp=2", "pp=x",
                             "pp=2x", "pp= 2", "pp=2.5", "pp=0x2", "pp==2", "pp=+2"})
        CHECK_THAT(refused(text), says("NAME=SIZE is expected, separated by commas"));
    for (const char* text : {"pp=99999999999", "pp=99999999999999999999"})
        CHECK_THAT(refused(text),
                   says("the size of an axis is expected to be at most 1073741824"));
    CHECK_THAT(refused("pp=2,tp=x"), says("'tp=x' is no axis of a mesh"));
    for (const char* text : {"=2", "p p=2", " pp=2", "pp =2", "seventeen_letters=2",
                             "p\x1b=2", "größe=2", "p/p=2"})
        CHECK_THAT(refused(text), says("1 to 16 letters, digits, - and _"));
    CHECK(refused("pp=0") == "pp=0: axis pp has size 0, expected 1 or more");
    CHECK(refused("dp=2,pp=-1") == "dp=2,pp=-1: axis pp has size -1, expected 1 or more");
    CHECK(refused("pp=2,dp=1,pp=2") == "pp=2,dp=1,pp=2: there are two axes pp");
    CHECK_THAT(refused("a=1000000,b=1000000"), says("more than 1073741824 ranks"));
}

}  // namespace lockstep::test

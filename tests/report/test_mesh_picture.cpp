// Tests pictures of meshes: every rank is at its place on each axis, in text and SVG.

#include <algorithm>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "src/chart/look.hpp"
#include "src/report/mesh_layout.hpp"
#include "src/report/mesh_picture.hpp"
#include "src/text/wrap.hpp"
#include "tests/balanced_xml.hpp"
#include "tests/catch.hpp"
#include "tests/count_of.hpp"
#include "tests/svg_bounds.hpp"

namespace lockstep::test {

namespace {

std::vector<MeshShape> random_shapes() {
    std::vector<MeshShape> shapes{MeshShape({}), MeshShape({{"dp", 1}}),
                                  MeshShape({{"dp", 1021}}),
                                  MeshShape({{"dp", 64}, {"cp", 1}, {"tp", 8}})};
    std::mt19937 random(27);
    for (int i = 0; i < 40; ++i) {
        std::vector<MeshShape::Axis> axes;
        for (std::size_t axis = 0; axis < 1 + random() % 5; ++axis)
            axes.push_back({"a" + std::to_string(axis),
                            static_cast<int>(random() % (axis == 0 ? 9 : 4)) + 1});
        shapes.emplace_back(axes);
    }
    return shapes;
}

/// Checks that a picture's row and column name the places of a rank.
void check_places(const MeshShape& shape, const MeshLayout& layout, int row, int column,
                  int rank) {
    const std::vector<std::string> axes = layout.row_axes();
    const std::vector<std::string> places = layout.row_places(row);
    REQUIRE(axes.size() == places.size());
    for (std::size_t i = 0; i < axes.size(); ++i) {
        const int place = shape.coordinate(rank, axes[i]);
        const std::size_t dash = places[i].find("–");
        if (dash == std::string::npos) {
            REQUIRE(places[i] == std::to_string(place));
            continue;
        }
        REQUIRE(std::stoi(places[i]) <= place);
        REQUIRE(std::stoi(places[i].substr(dash + std::string("–").size())) >= place);
    }
    for (const std::string& axis : layout.column_axes())
        REQUIRE(column / layout.columns_a_place(axis) % shape.size(axis) ==
                shape.coordinate(rank, axis));
}

std::string text_of(const MeshPicture& picture, int width = 80) {
    return mesh_text(picture, {width, false, ""});
}

MeshPicture mesh_of(const std::string& sizes, int per_node = 8) {
    MeshPicture picture = MeshPicture::of(read_mesh_shape(sizes), per_node);
    picture.title = "mesh";
    return picture;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

struct Rectangle {
    double left, top, right, bottom;

    bool contains(const Rectangle& other) const {
        return left <= other.left && top <= other.top && right >= other.right &&
               bottom >= other.bottom;
    }
    bool meets(const Rectangle& other) const {
        return left < other.right && other.left < right && top < other.bottom &&
               other.top < bottom;
    }
};

/// Returns the rectangles with this text in their tag or tooltip.
std::vector<Rectangle> rectangles_with(const std::string& svg, const std::string& text) {
    std::vector<Rectangle> found;
    for (std::size_t at = svg.find("<rect"); at != std::string::npos;
         at = svg.find("<rect", at + 1)) {
        if (svg.substr(at, svg.find('\n', at) - at).find(text) == std::string::npos)
            continue;
        const double x = attribute(svg, at, "x"), y = attribute(svg, at, "y");
        found.push_back(
            {x, y, x + attribute(svg, at, "width"), y + attribute(svg, at, "height")});
    }
    return found;
}

/// Checks that boxes and frames do not overlap, and that each box is in a frame.
void check_frames(const std::string& svg) {
    const std::vector<Rectangle> frames = rectangles_with(svg, "class=\"n\"");
    const std::vector<Rectangle> boxes = rectangles_with(svg, "<title>");
    const auto meeting = [](const std::vector<Rectangle>& all, const Rectangle& one) {
        return std::ranges::count_if(
            all, [&](const Rectangle& other) { return other.meets(one); });
    };
    for (const Rectangle& frame : frames)
        REQUIRE(meeting(frames, frame) == 1);
    for (const Rectangle& box : boxes) {
        REQUIRE(meeting(boxes, box) == 1);
        if (frames.empty()) continue;
        REQUIRE(meeting(frames, box) == 1);
        REQUIRE(std::ranges::any_of(
            frames, [&](const Rectangle& frame) { return frame.contains(box); }));
    }
}

}  // namespace

TEST_CASE("a layout has each rank once, in reading order, at its places",
          "[report][mesh]") {
    for (const MeshShape& shape : random_shapes())
        for (const int most : {1, 5, 12, 40}) {
            CAPTURE(shape.text(), most);
            const MeshLayout layout(shape, {most, 2, 4, 2});
            CHECK(layout.columns() <= most);
            int next = 0;
            for (int row = 0; row < layout.rows(); ++row)
                for (int column = 0; column < layout.columns(); ++column) {
                    const int rank = layout.rank_at(row, column);
                    if (rank < 0) continue;
                    REQUIRE(rank == next++);
                    check_places(shape, layout, row, column, rank);
                }
            CHECK(next == shape.ranks());
        }
}

TEST_CASE("sixteen devices are drawn with nodes as frames", "[report][mesh]") {
    CHECK(text_of(mesh_of("pp=2,dp=2,cp=2,tp=2")) == R"(mesh: 16 devices, 2 nodes of 8

cp           0       1
tp           0   1   0   1
          ┌────────────────┐
pp 0 dp 0 │  0   1   2   3 │ node 0
     dp 1 │  4   5   6   7 │
          ├────────────────┤
pp 1 dp 0 │  8   9  10  11 │ node 1
     dp 1 │ 12  13  14  15 │
          └────────────────┘
)");
}

TEST_CASE("nodes that are no rectangle of the mesh also have frames", "[report][mesh]") {
    MeshPicture picture = mesh_of("a=3,c=4", 5);
    picture.marked = 7;
    CHECK(text_of(picture) == R"(mesh: 12 devices, 3 nodes of 5, the last one with 2

c      0    1    2   3
    ┌──────────────────┐
a 0 │  0    1    2   3 │ node 0
    │    ┌─────────────┤
a 1 │  4 │  5    6  [7]│ node 1
    ├────┘    ┌────────┤
a 2 │  8    9 │ 10  11 │ node 2
    └─────────┴────────┘
)");
}

TEST_CASE("text fits into its width and is short", "[report][mesh]") {
    for (const MeshShape& shape : random_shapes())
        for (const int width : {40, 60, 80, 200})
            for (const int per_node : {1, 3, 8, 10'000}) {
                const MeshPicture picture = MeshPicture::of(shape, per_node);
                std::istringstream lines(text_of(picture, width));
                int count = 0;
                for (std::string line; std::getline(lines, line); ++count) {
                    CAPTURE(shape.text(), width, per_node, line);
                    CHECK(columns_of(line) <= width);
                }
                CHECK(count <= 60);
            }
}

TEST_CASE("if there are many rows, the first and the last are drawn", "[report][mesh]") {
    const std::string text = text_of(mesh_of("dp=1024"));
    CHECK(contains(text, "⋮ 118 more rows\n"));
    for (const char* shown : {"dp 0–7 ", "dp 56–63 ", "dp 1016–1023 ", "node 127"})
        CHECK(contains(text, shown));
    CHECK_FALSE(contains(text, "dp 64–71"));
}

TEST_CASE("devices are labelled with what they hold", "[report][mesh]") {
    MeshPicture picture = mesh_of("pp=2,tp=2", 4);
    picture.labels = {{"layers 0–1", "heads 0"}, {"layers 0–1"}, {"layers 2"}, {}};
    picture.marked = 1;
    CHECK(text_of(picture) == R"(mesh: 4 devices, 1 node

tp     0           1
     ┌────────────────────────┐
pp 0 │ 0          [1]         │ node 0
     │ layers 0–1  layers 0–1 │
     │ heads 0                │
     │                        │
pp 1 │ 2           3          │
     │ layers 2               │
     │                        │
     └────────────────────────┘
)");
    const std::string svg = mesh_svg(picture);
    for (const char* shown : {">layers 0–1<", ">heads 0<", ">layers 2<"})
        CHECK(contains(svg, shown));
    CHECK(count_of(svg, "stroke=\"#111\"") == 1);
    // A picture of many devices has no labels.
    MeshPicture large = mesh_of("dp=128");
    large.labels.assign(128, {"all layers"});
    CHECK_FALSE(contains(text_of(large), "all layers"));
    CHECK_FALSE(contains(mesh_svg(large), ">all layers<"));
    CHECK(contains(mesh_svg(large), "all layers</title>"));
}

TEST_CASE("an SVG has every rank inside of its node's frame", "[report][mesh]") {
    for (const MeshShape& shape : random_shapes())
        for (const int per_node : {1, 5, 8}) {
            const MeshPicture picture = MeshPicture::of(shape, per_node);
            CAPTURE(shape.text(), per_node);
            const std::string svg = mesh_svg(picture);
            REQUIRE(is_balanced_xml(svg));
            CHECK(outside_of_viewport(svg) == std::vector<std::string>());
            check_frames(svg);
            for (int rank = 0; rank < shape.ranks(); ++rank)
                REQUIRE(contains(svg, ">" + std::to_string(rank) + "</text>"));
            CHECK(count_of(svg, "<title>") == static_cast<std::size_t>(shape.ranks()));
            std::set<int> framed;
            for (int node = 0; node < picture.nodes(); ++node)
                if (contains(svg, ">node " + std::to_string(node) + "</text>"))
                    framed.insert(node);
            // A frame has a title if it is wide enough.
            if (per_node == 1) CHECK(framed.empty());
            if (per_node == 8 && shape.ranks() <= 96) CHECK_FALSE(framed.empty());
            CHECK((count_of(svg, "class=\"n\"") == 0) == (per_node == 1));
        }
}

TEST_CASE("a large mesh is drawn as dots, in bounds", "[report][mesh]") {
    const std::string svg = mesh_svg(mesh_of("pp=16,dp=128,tp=8"));
    CHECK(count_of(svg, "fill=\"#77AADD\"") == 1024 + 1);  // pp 0 and the legend
    CHECK(count_of(svg, "class=\"n\"") == 2048);
    CHECK(svg.size() < 2'000'000);
    CHECK(is_balanced_xml(svg));
    CHECK(outside_of_viewport(svg) == std::vector<std::string>());
}

TEST_CASE("devices have the colour of their place along an axis", "[report][mesh]") {
    MeshPicture picture = mesh_of("pp=2,dp=2,tp=4");
    const auto boxes_in = [&](int place) {
        return count_of(mesh_svg(picture),
                        "fill=\"" + colour_of_place(place).hex() + "\"><title>");
    };
    CHECK((boxes_in(0) == 8 && boxes_in(1) == 8 && boxes_in(2) == 0));
    picture.coloured = "tp";
    CHECK((boxes_in(0) == 4 && boxes_in(3) == 4));
    CHECK(contains(mesh_svg(picture), ">tp 3</text>"));
    const std::string text = mesh_text(picture, {80, true, ""});
    CHECK(count_of(text, on_colour("  0 ", colour_of_place(0))) == 1);
    CHECK(contains(text, on_colour(" tp 2 ", colour_of_place(2))));
    std::set<std::string> colours;
    for (int place = 0; place < kPlaceColours; ++place)
        colours.insert(colour_of_place(place).hex());
    CHECK(colours.size() == kPlaceColours);
    CHECK(colour_of_place(kPlaceColours).hex() == colour_of_place(0).hex());
    CHECK(slowest_axis(MeshShape({{"pp", 1}, {"dp", 2}, {"tp", 2}})) == "dp");
    CHECK(slowest_axis(MeshShape({{"pp", 1}})).empty());
}

TEST_CASE("all texts of a mesh are escaped, and in the reader's language",
          "[report][mesh]") {
    MeshPicture picture = MeshPicture::of(MeshShape({{"<&>", 2}, {"\"", 2}}), 2);
    picture.title = "<title>" + std::string(300, 'w');
    picture.labels.assign(4, {"<b>", std::string(200, 'x')});
    picture.translate = [](std::string_view english) {
        return english == "node 1" ? std::string("<节点>") : std::string(english);
    };
    const std::string svg = mesh_svg(picture);
    CHECK(is_balanced_xml(svg));
    CHECK(outside_of_viewport(svg) == std::vector<std::string>());
    CHECK(contains(svg, ">&lt;节点&gt;</text>"));
    CHECK(contains(text_of(picture), " <节点>\n"));
    CHECK(MeshPicture::of(MeshShape({}), 8).note() == "1 device, 1 node");
    CHECK(mesh_of("dp=3", 1).note() == "3 devices, each on its own node");
}

}  // namespace lockstep::test

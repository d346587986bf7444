#include <set>
#include <sstream>

#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "tests/balanced_xml.hpp"
#include "tests/catch.hpp"
#include "tests/count_of.hpp"
#include "tests/svg_bounds.hpp"

namespace lockstep::test {

namespace {

using Labels = std::vector<std::string>;

Labels labels_of(const Axis& axis, int most) {
    Labels found;
    for (const AxisTick& tick : axis.ticks(most))
        found.push_back(tick.label);
    return found;
}

Labels labels(Picoseconds end, double per_unit, int most) {
    return labels_of({end, per_unit, ""}, most);
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// One row of one device. The boxes have these lengths, in units, and are numbered from
/// `first` on. After them the device is idle until `end`.
Chart row_of_boxes(const std::vector<Picoseconds>& lengths, int first, Picoseconds end) {
    Chart chart;
    const int look = chart.look({Meaning::forward, 'F', '-', "forward"});
    chart.legend.push_back({"", {look}, "forward"});
    Row row;
    row.label = "compute";
    row.shows_idle = true;
    Picoseconds time = 0;
    for (const Picoseconds length : lengths) {
        row.boxes.push_back({time, time + length, look, first++, 0, 0});
        time += length;
    }
    Panel panel;
    panel.end = end;
    panel.axis.end = end;
    panel.groups.push_back({{0}, {row}, {}});
    panel.words_of = [](const RowGroup&, const Box& box) {
        const std::string number = std::to_string(box.number);
        return BoxWords{{"forward " + number, number}, "forward <" + number + ">"};
    };
    chart.panels.push_back(panel);
    return chart;
}

std::string text_of(const Chart& chart) {
    return chart_text(chart, {80, false, ""});
}

}  // namespace

TEST_CASE("an axis has round times in the unit shown", "[chart]") {
    CHECK(labels(27, 1, 8) == Labels{"0", "5", "10", "15", "20", "25"});
    CHECK(labels(81, 3, 8) == Labels{"0", "5", "10", "15", "20", "25"});
    CHECK(labels(1100, 1000, 4) == Labels{"0", "0.5", "1"});
    CHECK(labels(7000, 1e4, 7) ==
          Labels{"0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7"});
    CHECK(labels(3'600'000, 1, 3) == Labels{"0", "2000000"});
    CHECK(Axis{81, 3, ""}.ticks(8)[1].time == 15);
}

TEST_CASE("an axis has at least one time, and none between whole numbers", "[chart]") {
    CHECK(labels(2, 1, 100) == Labels{"0", "1", "2"});
    CHECK(labels(0, 1, 10) == Labels{"0"});
    CHECK(labels(0, 1e9, 0) == Labels{"0"});
}

TEST_CASE("an axis never has more times than asked for", "[chart]") {
    for (Picoseconds end = 1; end < 2000; end += 7)
        for (const double per_unit : {1., 3., 4., 1000.})
            for (const int most : {1, 2, 5, 9}) {
                const auto ticks = Axis{end, per_unit, ""}.ticks(most);
                INFO(end << " by " << per_unit << ", at most " << most);
                CHECK(ticks.size() <= static_cast<std::size_t>(most) + 1);
                CHECK(ticks.back().time <= end);
            }
}

TEST_CASE("an axis of seconds has the largest unit that it reaches", "[chart]") {
    const Axis axis = Axis::of_seconds(20'000'000);
    CHECK(axis.unit == "us");
    CHECK(labels_of(axis, 5) == Labels{"0", "5", "10", "15", "20"});
    CHECK(axis.ticks(5)[1].time == 5'000'000);
    CHECK(Axis::of_seconds(1'500).unit == "ns");
    CHECK(labels_of(Axis::of_seconds(1'500), 10)[1] == "0.2");
    CHECK(Axis::of_seconds(3 * kSecond).unit == "s");
    CHECK(labels_of(Axis::of_seconds(0), 10) == Labels{"0", "1"});
}

TEST_CASE("no two meanings have one colour, in pictures or on terminals", "[chart]") {
    std::set<std::string> colours;
    std::set<int> on_terminals;
    const int last = static_cast<int>(Meaning::resting);
    for (int meaning = 0; meaning <= last; ++meaning) {
        const Colour colour = colour_of(static_cast<Meaning>(meaning));
        colours.insert(colour.hex());
        on_terminals.insert(colour.terminal());
        CHECK(colour.terminal() >= 16);
        CHECK(colour.terminal() < 256);
    }
    CHECK(colours.size() == static_cast<std::size_t>(last) + 1);
    CHECK(on_terminals.size() == static_cast<std::size_t>(last) + 1);
    CHECK(colour_of(Meaning::forward).lighter(1).hex() == "#FFFFFF");
    CHECK(colour_of(Meaning::forward).hex() == "#56B4E9");
}

TEST_CASE("members of a group are named by ranges", "[chart]") {
    CHECK(members_text({3}, 10) == "3");
    CHECK(members_text({0, 1, 2, 3}, 10) == "0–3 × 4");
    CHECK(members_text({0, 2, 3, 9}, 10) == "0, 2–3, 9 × 4");
    CHECK(members_text({0, 2, 4, 6, 8, 10, 12}, 10) == "0, 2, 4, 6, … × 7");
}

TEST_CASE("a number is written wherever it fits, in text and in the SVG", "[chart]") {
    // A column is one unit long: "F9" fits into two columns, "F10" does not.
    const Chart narrow = row_of_boxes(std::vector<Picoseconds>(4, 2), 8, 66);
    CHECK(contains(text_of(narrow), "|F8F9F-F-//"));
    const Chart wide = row_of_boxes({2, 2, 3, 4}, 8, 66);
    CHECK(contains(text_of(wide), "|F8F9F10F11-//"));
    // A thousand pixels show 66 units.
    const std::string svg = chart_svg(wide);
    for (const char* number : {">8<", ">9<", ">10<", ">11<"})
        CHECK(contains(svg, number));
    CHECK(contains(chart_svg(row_of_boxes({20}, 8, 66)), ">forward 8<"));
}

TEST_CASE("a picture that grows is wide enough for the number in its shortest box",
          "[chart]") {
    Chart chart = row_of_boxes(std::vector<Picoseconds>(100, 1), 0, 100);
    CHECK(count_of(chart_svg(chart), " class=\"b\"") == 10);  // 10 pixels: one digit
    chart.grows = true;
    CHECK(count_of(chart_svg(chart), " class=\"b\"") == 100);
}

TEST_CASE("idle time is hatched until the run ends", "[chart]") {
    Chart chart = row_of_boxes({10, 20}, 0, 60);
    chart.panels[0].axis.end = 120;  // another panel takes longer
    CHECK(contains(text_of(chart), "-//////////"));
    CHECK(contains(text_of(chart), "/......"));
    CHECK(contains(text_of(chart), "/ idle  . nothing"));
    const std::string svg = chart_svg(chart);
    const std::size_t hatched = svg.rfind("<rect", svg.find("class=\"d\""));
    CHECK(attribute(svg, hatched, "width") == 500);
    CHECK(contains(svg, ">idle</text>"));
    chart.panels[0].groups[0].rows[0].shows_idle = false;
    CHECK_FALSE(contains(text_of(chart), "/"));
    CHECK_FALSE(contains(chart_svg(chart), "class=\"d\""));
}

TEST_CASE("all texts of a chart are escaped and are inside the viewport", "[chart]") {
    const std::string hostile = "<&>\"\x01\xff\n'";
    Chart chart = row_of_boxes({10, 20}, 0, 60);
    Panel& panel = chart.panels[0];
    panel.title = hostile + std::string(300, 'w');
    panel.note = hostile;
    panel.axis.unit = hostile;
    panel.groups[0].rows[0].label = hostile + std::string(100, 'w');
    panel.words_of = [&](const RowGroup&, const Box&) {
        return BoxWords{{hostile}, hostile};
    };
    panel.amount_text = [](double) { return std::string("<&>"); };
    panel.layers = {chart.look({Meaning::workspace, 0, 0, hostile})};
    panel.groups[0].strips.push_back({hostile, {{0, {1}}, {5, {2}}}, 2, 5});
    panel.arrows.push_back({{0, 0}, {0, 0}, 0, 5, hostile});
    chart.legend.push_back({hostile, {panel.layers[0]}, hostile});
    chart.member = "<device>";
    const std::string svg = chart_svg(chart);
    CHECK(is_balanced_xml(svg));
    CHECK(contains(svg, "&lt;&amp;&gt;&quot; ?\n'"));
    CHECK_FALSE(contains(svg, "\x01"));
    CHECK_FALSE(contains(svg, "\xff"));
    CHECK_FALSE(contains(svg, "<&"));
    CHECK(outside_of_viewport(svg) == std::vector<std::string>());
    CHECK(xml_escaped("ä – 語") == "ä – 語");
    CHECK(xml_escaped("\xef\xbf\xbf") == "?");
}

TEST_CASE("shapes outside of a viewport are found", "[chart]") {
    const SvgPart picture{100, 100, svg_text(80, 50, "far too long")};
    CHECK(outside_of_viewport(svg_document(picture)).size() == 1);
    CHECK(
        outside_of_viewport(svg_document({100, 100, svg_text(20, 50, "short")})).empty());
}

}  // namespace lockstep::test

#include <regex>
#include <sstream>

#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/report/timeline.hpp"
#include "src/text/wrap.hpp"
#include "tests/balanced_xml.hpp"
#include "tests/catch.hpp"
#include "tests/count_of.hpp"
#include "tests/report/support.hpp"
#include "tests/svg_bounds.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string text_of(const RunReport& report, int width, const char* title = "") {
    return chart_text(timeline_chart(report, title), {width, false, ""});
}

std::string svg_of(const RunReport& report, const char* title) {
    return chart_svg(timeline_chart(report, title));
}

/// Two devices with one difference: their last operations have different names.
RunReport uneven_run() {
    RunReport report = small_run();
    report.trace.back().name = "adam";
    return report;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        lines.push_back(line);
    return lines;
}

/// `at` is the span's start and end.
void add(RunReport& report, int rank, const std::string& queue, const std::string& name,
         const std::string& kind, std::pair<Picoseconds, Picoseconds> at,
         int micro_batch = -1) {
    report.trace.push_back(
        {rank, queue, name, kind, at.first, at.second, micro_batch, 0, {}});
}

/// GPipe as in the papers' picture: forward takes 1 s, backward takes 2 s.
RunReport gpipe(int stages, int micro_batches) {
    RunReport report;
    report.ranks.resize(static_cast<std::size_t>(stages));
    const int turn = micro_batches + stages - 1;
    for (int s = 0; s < stages; ++s) {
        for (int m = 0; m < micro_batches; ++m) {
            const Picoseconds back = turn + (stages - 1 - s) * 2 + m * 2;
            add(report, s, "compute", "forward", "phase",
                {(s + m) * kSecond, (s + m + 1) * kSecond}, m);
            add(report, s, "compute", "backward", "phase",
                {back * kSecond, (back + 2) * kSecond}, m);
        }
    }
    return report;
}

RunReport many_spans(int ranks, int spans) {
    RunReport report;
    report.ranks.resize(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
        for (int i = 0; i < spans; ++i)
            add(report, rank, "compute", "matmul", "operation",
                {i * 1000 + rank % 2, i * 1000 + 800 + rank});
    return report;
}

/// Devices 0, 2, 4, … have one timeline, and devices 1, 3, 5, … have another.
RunReport every_second(int ranks) {
    RunReport report;
    for (int rank = 0; rank < ranks; ++rank)
        add(report, rank, "compute", "forward", "phase", {rank % 2, 100}, 12345);
    return report;
}

}  // namespace

TEST_CASE("a run is drawn in eighty columns", "[report]") {
    REQUIRE(text_of(uneven_run(), 80, "data parallel") ==
            R"(data parallel: 2 devices, 20 us
device 0 compute|F0--B0======//////ooF1--B1======//////oo|  65%
         world  |............r~~~~~..............r~~~~~..|  30%
device 1 compute|F0--B0======//////ooF1--B1======//////oo|  65%
         world  |............r~~~~~..............r~~~~~..|  30%
                 +---------+---------+---------+---------+
              us 0         5         10        15        20
F- forward  B= backward  o operation  r~ all-reduce  0 1 2 micro-batch  / idle
. nothing  % busy
)");
}

TEST_CASE("a wait is a gap in the picture, and a text on the next box", "[report]") {
    const auto drawn = [](const RunReport& report) {
        static const std::regex words("<title>[^<]*</title>| data-waits=\"[^\"]*\"");
        return std::regex_replace(svg_of(report, "run"), words, "");
    };
    RunReport report = uneven_run();
    const std::string text = text_of(report, 80), svg = drawn(report);
    REQUIRE_FALSE(contains(svg_of(report, "run"), "it waited"));
    report.trace.push_back(first_wait());
    CHECK(text_of(report, 80) == text);
    CHECK(drawn(report) == svg);
    CHECK(contains(svg_of(report, "run"), "it waited"));
}

TEST_CASE("a run is drawn in sixty columns", "[report]") {
    REQUIRE(text_of(uneven_run(), 60) == R"(2 devices, 20 us
0 compute|F0--B0======//////ooF1--B1======//////oo|  65%
  world  |............r~~~~~..............r~~~~~..|  30%
1 compute|F0--B0======//////ooF1--B1======//////oo|  65%
  world  |............r~~~~~..............r~~~~~..|  30%
          +---------+---------+---------+---------+
       us 0         5         10        15        20
F- forward  B= backward  o operation  r~ all-reduce
0 1 2 micro-batch  / idle  . nothing  % busy
)");
}

TEST_CASE("devices that do exactly the same are one row", "[report]") {
    const std::string text = text_of(small_run(), 80);
    REQUIRE(contains(text, "2 devices, 20 us\n"));
    REQUIRE(contains(text, "0–1 × 2 compute|F0"));
    REQUIRE(count_of(text, "compute") == 1);
    const std::string svg = svg_of(small_run(), "same");
    REQUIRE(contains(svg, ">devices 0–1 × 2</text>"));
    REQUIRE(count_of(svg, "<title>all_reduce\n") == 2);
    REQUIRE(count_of(svg, "marker-end") == 0);

    // Devices that differ in a time, label, look, number or memory are drawn separately.
    const auto apart = [](const auto& change) {
        RunReport report = small_run();
        change(report);
        return count_of(text_of(report, 80), "compute") == 2 &&
               count_of(svg_of(report, ""), ">compute</text>") == 2;
    };
    REQUIRE(apart([](RunReport& report) { report.trace.back().end -= 1; }));
    REQUIRE(apart([](RunReport& report) { report.trace.back().start += 1; }));
    REQUIRE(apart([](RunReport& report) { report.trace.back().name = "adam"; }));
    REQUIRE(apart([](RunReport& report) { report.trace.back().kind = "copy"; }));
    REQUIRE(apart([](RunReport& report) { report.trace.back().micro_batch = 7; }));
    REQUIRE(apart([](RunReport& report) { report.trace.pop_back(); }));
    REQUIRE(apart([](RunReport& report) { report.memory_trace.back().bytes[0] += 1; }));
}

TEST_CASE("equal boxes of a schedule are equally wide", "[report]") {
    const std::vector<std::string> lines = lines_of(text_of(gpipe(3, 4), 80));
    REQUIRE(lines[1] ==
            "device 0|F0-F1-F2-F3-//////////////////B0====B1====B2====B3====|  67%");
    REQUIRE(lines[2] ==
            "device 1|///F0-F1-F2-F3-/////////B0====B1====B2====B3====//////|  67%");
}

TEST_CASE("no line of a timeline is wider than requested", "[report]") {
    RunReport long_names = small_run();
    for (TraceEvent& event : long_names.trace)
        if (event.queue == "world") event.queue = "a communicator with a very long name";
    for (int width = 40; width <= 130; ++width) {
        for (const RunReport& report :
             {small_run(), uneven_run(), gpipe(4, 24), long_names, every_second(40)}) {
            for (const std::string& line : lines_of(text_of(report, width, "a title"))) {
                INFO(width << ": " << line);
                REQUIRE(columns_of(line) <= width);
            }
        }
    }
}

TEST_CASE("a picture in colour has the same text as one without", "[report]") {
    std::string coloured = chart_text(timeline_chart(small_run(), "run"), {80, true, ""});
    REQUIRE(contains(coloured, "\x1b["));
    for (std::size_t at; (at = coloured.find('\x1b')) != std::string::npos;)
        coloured.erase(at, coloured.find('m', at) - at + 1);
    REQUIRE(coloured == text_of(small_run(), 80, "run"));
}

TEST_CASE("a run without events, or with empty ones, is drawn", "[report]") {
    REQUIRE(text_of({}, 80) == "0 devices, 0 ps\n(no span of time was traced)\n");
    RunReport report;
    add(report, 0, "compute", "matmul", "operation", {5, 5});
    REQUIRE(contains(text_of(report, 80), "no span of time"));
    add(report, 0, "compute", "matmul", "operation", {0, 10});
    REQUIRE(contains(text_of(report, 80), "| 100%"));
    REQUIRE(is_balanced_xml(svg_of(report, "empty")));
    REQUIRE(is_balanced_xml(svg_of(RunReport(), "none")));
    REQUIRE(is_balanced_xml(chart_svg(timeline_chart(std::vector<TitledRun>()))));
}

TEST_CASE("a short span is shown if its column is otherwise empty", "[report]") {
    RunReport report;
    report.ranks.resize(1);
    report.ranks[0].time.end = 1'000'000;
    add(report, 0, "world", "broadcast", "communication", {500'000, 500'001});
    REQUIRE(contains(text_of(report, 80), "...b..."));
}

TEST_CASE("a column shows the work or idle time that fills most of it", "[report]") {
    RunReport report;
    report.ranks.resize(1);
    report.ranks[0].time.end = 6399;  // 64 columns of nearly 100 ps
    add(report, 0, "compute", "forward", "phase", {0, 331});
    add(report, 0, "compute", "backward", "phase", {391, 829});
    REQUIRE(contains(text_of(report, 79), "|F--/B===////"));
}

TEST_CASE("devices beyond the sixteenth are counted", "[report]") {
    const std::string text = text_of(many_spans(20, 3), 80);
    REQUIRE(contains(text, "device 15|"));
    REQUIRE_FALSE(contains(text, "device 16|"));
    REQUIRE(contains(text, "(and 4 more devices, not drawn)"));
}

TEST_CASE("times up to the largest are drawn", "[report]") {
    RunReport report;
    const Picoseconds end = 9'000'000'000'000'000'000;
    add(report, 0, "compute", "forward", "phase", {0, end / 2}, 0);
    add(report, 0, "compute", "backward", "phase", {end / 2, end}, 0);
    const std::string text = text_of(report, 80);
    REQUIRE(contains(text, "|F0"));
    REQUIRE(contains(text, "-B0="));
    REQUIRE(contains(text, "| 100%"));
}

TEST_CASE(
    "the SVG has a box for each span, with a tooltip, and an arrow for each message",
    "[report]") {
    const std::string svg = svg_of(uneven_run(), "R&D <1>");
    REQUIRE(is_balanced_xml(svg));
    REQUIRE(contains(svg, "R&amp;D &lt;1&gt;"));
    REQUIRE(contains(
        svg, "<title>forward\n0 ps to 2 us (2 us)\nmicro-batch 0\n64 B\nsrc/step.cpp:7"));
    REQUIRE(count_of(svg, "<title>all_reduce\n") == 4);
    REQUIRE(count_of(svg, "<title>matmul\n") == 8);
    REQUIRE(count_of(svg, "marker-end") == 4);
    REQUIRE(contains(svg, "<title>64 B from device 0 to device 1, 6 us to 9 us"));
    REQUIRE(count_of(svg, "<title>gradients: at most 100 B") == 2);
    REQUIRE(contains(svg, ">forward 0</text>"));
    REQUIRE(outside_of_viewport(svg) == std::vector<std::string>());
}

TEST_CASE("runs are drawn below one another on one scale of time", "[report]") {
    RunReport twice = small_run();
    add(twice, 0, "compute", "sgd", "operation", {30'000'000, 40'000'000});
    const RunReport once = small_run();
    const RunReport none;
    const std::string svg =
        chart_svg(timeline_chart({{"once", once}, {"untraced", none}, {"twice", twice}}));
    REQUIRE(is_balanced_xml(svg));
    REQUIRE(contains(svg, ">once</text>"));
    REQUIRE(contains(svg, ">twice</text>"));
    REQUIRE_FALSE(contains(svg, "untraced"));
    REQUIRE(count_of(svg, ">35</text>") == 2);
}

TEST_CASE("a run that is much shorter has a scale of its own", "[report]") {
    RunReport longer = small_run();
    add(longer, 0, "compute", "sgd", "operation", {30'000'000, 500'000'000});
    const RunReport once = small_run();
    const std::string svg =
        chart_svg(timeline_chart({{"short", once}, {"long", longer}}));
    REQUIRE(contains(svg, ">20</text>"));
    REQUIRE(contains(svg, ">500</text>"));
}

TEST_CASE("the size of an SVG is bounded", "[report]") {
    const std::string few = svg_of(many_spans(4, 100), "few");
    REQUIRE(count_of(few, "<title>matmul\n") == 400);
    const std::string many = svg_of(many_spans(100, 20'000), "many");
    REQUIRE(count_of(many, "<title>") <= 20'000);
    REQUIRE(contains(many, " spans, the longest: matmul"));
    REQUIRE(contains(many, ">100 devices, 20 us</text>"));
    REQUIRE(contains(many, ">36 more devices are not drawn</text>"));
    REQUIRE(many.size() < 6'000'000);
    // Each device has several queues. The boxes are too many for one element each.
    RunReport wide;
    for (const char* queue : {"compute", "world", "tp", "dp"}) {
        for (TraceEvent event : many_spans(64, 120).trace) {
            event.queue = queue;
            wide.trace.push_back(event);
        }
    }
    const std::string pixels = svg_of(wide, "wide");
    REQUIRE(count_of(pixels, "<title>") == 0);
    REQUIRE(contains(pixels, ">device 63</text>"));
    REQUIRE(pixels.size() < 6'000'000);
    REQUIRE(is_balanced_xml(pixels));

    RunReport chatty = uneven_run();
    chatty.flows.resize(5000, chatty.flows.front());
    const std::string svg = svg_of(chatty, "chatty");
    REQUIRE(contains(svg, "5,000 messages without arrows"));
    REQUIRE(count_of(svg, "marker-end") == 0);
}

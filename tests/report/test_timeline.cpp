#include <sstream>

#include "src/report/time_axis.hpp"
#include "src/report/timeline.hpp"
#include "src/text/wrap.hpp"
#include "tests/balanced_xml.hpp"
#include "tests/catch.hpp"
#include "tests/report/support.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

std::string text_of(const RunReport& report, int width, const char* title = "") {
    return timeline_text(report, {width, false, title});
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        lines.push_back(line);
    return lines;
}

void add(RunReport& report, int rank, const std::string& queue, const std::string& name,
         const std::string& kind, Picoseconds start, Picoseconds end,
         int micro_batch = -1) {
    report.trace.push_back({rank, queue, name, kind, start, end, micro_batch, 0, {}});
}

/// GPipe with forward 1 s and backward 2 s: the picture in the papers.
RunReport gpipe(int stages, int micro_batches) {
    RunReport report;
    report.ranks.resize(static_cast<std::size_t>(stages));
    const int turn = micro_batches + stages - 1;
    for (int s = 0; s < stages; ++s) {
        for (int m = 0; m < micro_batches; ++m) {
            const Picoseconds back = turn + (stages - 1 - s) * 2 + m * 2;
            add(report, s, "compute", "forward", "phase", (s + m) * kSecond,
                (s + m + 1) * kSecond, m);
            add(report, s, "compute", "backward", "phase", back * kSecond,
                (back + 2) * kSecond, m);
        }
    }
    return report;
}

RunReport many_spans(int ranks, int spans) {
    RunReport report;
    report.ranks.resize(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank)
        for (int i = 0; i < spans; ++i)
            add(report, rank, "compute", "matmul", "operation", i * 1000, i * 1000 + 900);
    return report;
}

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos;
         at = text.find(part, at + 1))
        ++count;
    return count;
}

}  // namespace

TEST_CASE("a run is drawn in eighty columns", "[report]") {
    REQUIRE(text_of(small_run(), 80, "data_parallel") ==
            R"(data_parallel: 2 devices, 20 us
device 0 compute |F0--B0======......ooF1--B1======......oo|  65%
         world   |............r~~~~~..............r~~~~~..|  30%
device 1 compute |F0--B0======......ooF1--B1======......oo|  65%
         world   |............r~~~~~..............r~~~~~..|  30%
                  +---------+---------+---------+---------+
               us 0         5         10        15        20
F- forward  B= backward  o operation  r~ all-reduce  . idle  0 1 2 micro-batch
% busy
)");
}

TEST_CASE("a run is drawn in sixty columns", "[report]") {
    REQUIRE(text_of(small_run(), 60) ==
            R"(2 devices, 20 us
dev 0 compute |F0B0==...oF1B1==...o|  65%
      world   |......r~~.......r~~.|  30%
dev 1 compute |F0B0==...oF1B1==...o|  65%
      world   |......r~~.......r~~.|  30%
               +---------+---------+
            us 0         10        20
F- forward  B= backward  o operation  r~ all-reduce  . idle
0 1 2 micro-batch  % busy
)");
}

TEST_CASE("equal boxes of a schedule are equally wide", "[report]") {
    const std::vector<std::string> lines = lines_of(text_of(gpipe(3, 4), 80));
    REQUIRE(lines[1] ==
            "device 0 |F0-F1-F2-F3-..................B0====B1====B2====B3====|  67%");
    REQUIRE(lines[2] ==
            "device 1 |...F0-F1-F2-F3-.........B0====B1====B2====B3====......|  67%");
}

TEST_CASE("no line of a timeline is wider than asked", "[report]") {
    RunReport long_names = small_run();
    for (TraceEvent& event : long_names.trace)
        if (event.queue == "world") event.queue = "a communicator with a very long name";
    for (int width = 40; width <= 130; ++width) {
        for (const RunReport& report : {small_run(), gpipe(4, 24), long_names}) {
            for (const std::string& line : lines_of(text_of(report, width, "a title"))) {
                INFO(width << ": " << line);
                REQUIRE(columns_of(line) <= width);
            }
        }
    }
}

TEST_CASE("colour changes nothing but colour", "[report]") {
    std::string coloured = timeline_text(small_run(), {80, true, "run"});
    REQUIRE(contains(coloured, "\x1b["));
    for (std::size_t at; (at = coloured.find('\x1b')) != std::string::npos;)
        coloured.erase(at, coloured.find('m', at) - at + 1);
    REQUIRE(coloured == text_of(small_run(), 80, "run"));
}

TEST_CASE("a run without events, or with empty ones, is drawn", "[report]") {
    REQUIRE(text_of({}, 80) == "0 devices, 0 ps\n(no span of time was traced)\n");
    RunReport report;
    add(report, 0, "compute", "matmul", "operation", 5, 5);
    REQUIRE(contains(text_of(report, 80), "no span of time"));
    add(report, 0, "compute", "matmul", "operation", 0, 10);
    REQUIRE(contains(text_of(report, 80), "| 100%"));
    REQUIRE(is_balanced_xml(timeline_svg(report, "empty")));
    REQUIRE(is_balanced_xml(timeline_svg(RunReport(), "none")));
    REQUIRE(is_balanced_xml(timeline_svg({})));
}

TEST_CASE("a short span is seen where nothing else is", "[report]") {
    RunReport report;
    report.ranks.resize(1);
    report.ranks[0].time.end = 1'000'000;
    add(report, 0, "world", "broadcast", "communication", 500'000, 500'001);
    REQUIRE(contains(text_of(report, 80), "...b..."));
}

TEST_CASE("a column shows what fills most of it, or idle", "[report]") {
    RunReport report;
    report.ranks.resize(1);
    report.ranks[0].time.end = 6399;  // 64 columns of almost 100
    add(report, 0, "compute", "forward", "phase", 0, 331);
    add(report, 0, "compute", "backward", "phase", 391, 829);
    REQUIRE(contains(text_of(report, 80), "|F--.B===...."));
}

TEST_CASE("devices beyond the sixteenth are counted", "[report]") {
    const std::string text = text_of(many_spans(20, 3), 80);
    REQUIRE(contains(text, "device 15 |"));
    REQUIRE_FALSE(contains(text, "device 16 |"));
    REQUIRE(contains(text, "(and 4 more devices, not drawn)"));
}

TEST_CASE("times up to the largest are drawn", "[report]") {
    RunReport report;
    const Picoseconds end = 9'000'000'000'000'000'000;
    add(report, 0, "compute", "forward", "phase", 0, end / 2, 0);
    add(report, 0, "compute", "backward", "phase", end / 2, end, 0);
    const std::string text = text_of(report, 80);
    REQUIRE(contains(text, "|F0"));
    REQUIRE(contains(text, "-B0="));
    REQUIRE(contains(text, "| 100%"));
}

TEST_CASE("a scale of time has round steps", "[report]") {
    const TimeAxis axis = TimeAxis::of(20'000'000, 5);
    REQUIRE(axis.step == 5'000'000);
    REQUIRE(axis.unit_name == std::string("us"));
    REQUIRE(axis.label(15'000'000) == "15");
    REQUIRE(TimeAxis::of(1'500, 10).label(200) == "0.2");
    REQUIRE(TimeAxis::of(0, 10).step == 1);
}

TEST_CASE(
    "the SVG has a box for each span, with a tooltip, and an arrow for each message",
    "[report]") {
    const std::string svg = timeline_svg(small_run(), "R&D <1>");
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
}

TEST_CASE("runs are drawn below one another on one scale of time", "[report]") {
    RunReport twice = small_run();
    add(twice, 0, "compute", "sgd", "operation", 30'000'000, 40'000'000);
    const std::string svg =
        timeline_svg({{"once", small_run()}, {"untraced", {}}, {"twice", twice}});
    REQUIRE(is_balanced_xml(svg));
    REQUIRE(contains(svg, ">once</text>"));
    REQUIRE(contains(svg, ">twice</text>"));
    REQUIRE_FALSE(contains(svg, "untraced"));
    REQUIRE(count_of(svg, ">35</text>") == 2);
}

TEST_CASE("the size of an SVG is bounded", "[report]") {
    const std::string few = timeline_svg(many_spans(4, 100), "few");
    REQUIRE(count_of(few, "<title>matmul\n") == 400);
    const std::string many = timeline_svg(many_spans(100, 20'000), "many");
    REQUIRE(count_of(many, "<title>") <= 20'000);
    REQUIRE(contains(many, " spans, the longest: matmul"));
    REQUIRE(contains(many, "100 devices, 20 us; the first 64 are drawn"));
    REQUIRE(many.size() < 6'000'000);

    RunReport chatty = small_run();
    chatty.flows.resize(5000, chatty.flows.front());
    const std::string svg = timeline_svg(chatty, "chatty");
    REQUIRE(contains(svg, "5,000 messages without arrows"));
    REQUIRE(count_of(svg, "marker-end") == 0);
}

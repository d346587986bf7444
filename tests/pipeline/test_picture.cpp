#include <cstdlib>
#include <set>
#include <sstream>

#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/period.hpp"
#include "src/pipeline/picture.hpp"
#include "src/report/timeline.hpp"
#include "src/text/wrap.hpp"
#include "tests/balanced_xml.hpp"
#include "tests/catch.hpp"
#include "tests/count_of.hpp"
#include "tests/pipeline/generator_shapes.hpp"
#include "tests/svg_bounds.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Catch::Matchers::WithinAbs;

namespace {

struct Timed {
    Schedule schedule;
    Timing timing;

    std::string text(const TextStyle& style = {80, false, "--svg"},
                     const SchedulePicture& picture = {}) const {
        return chart_text(schedule_chart(schedule, timing, picture), style);
    }
    std::string svg(const SchedulePicture& picture = {}) const {
        return chart_svg(schedule_chart(schedule, timing, picture));
    }
};

Timed timed(Schedule schedule, const Durations& durations = {}) {
    Timing timing = time_schedule(schedule, {durations});
    return {std::move(schedule), std::move(timing)};
}

/// Times a generator's schedule. Only interleaved has `chunks` chunks.
Timed timed(const std::string& name, int stages, int micro_batches, int chunks = 2,
            const Durations& durations = {}) {
    return timed(
        make_schedule(name, {stages, micro_batches, name == "interleaved" ? chunks : 1}),
        durations);
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

std::vector<std::string> lines_of(const std::string& text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);)
        lines.push_back(line);
    return lines;
}

/// Returns the text after each `part`, up to `end`.
std::vector<std::string> all_after(const std::string& text, const std::string& part,
                                   char end) {
    std::vector<std::string> found;
    for (std::size_t at = text.find(part); at != std::string::npos;
         at = text.find(part, at + 1)) {
        const std::size_t from = at + part.size();
        found.push_back(text.substr(from, text.find(end, from) - from));
    }
    return found;
}

bool is_computation_kind(InstructionKind kind) {
    return has_micro_batch(kind) && !is_message(kind);
}

/// Requires that every computation has a box at its time.
void require_boxes(const Timed& timed) {
    const std::string svg = timed.svg();
    const std::size_t track = svg.find("class=\"r\"");
    const std::size_t track_tag = svg.rfind("<rect", track);
    const double left = attribute(svg, track_tag, "x");
    const double pixels =
        attribute(svg, track_tag, "width") / static_cast<double>(timed.timing.makespan);
    double row = 0;
    for (int stage = 0; stage < timed.schedule.stages; ++stage) {
        const double row_above = row;
        for (std::size_t i = 0; i < timed.schedule.of_stage(stage).size(); ++i) {
            const Instruction& work = timed.schedule.of_stage(stage)[i];
            if (!is_computation_kind(work.kind)) continue;
            const TimeSpan span = timed.timing.spans[static_cast<std::size_t>(stage)][i];
            std::ostringstream title;
            title << "<title>" << text_of(work) << " on stage " << stage << ", "
                  << span.start << " to " << span.end << "\n";
            INFO(timed.schedule.name << ": " << title.str());
            REQUIRE(count_of(svg, title.str()) == 1);
            const std::size_t tag = svg.rfind("<rect", svg.find(title.str()));
            // Two overlapping computations share a box: each of them gets a half.
            const Positions pair = timed.schedule.together({stage, static_cast<int>(i)});
            const double length =
                static_cast<double>(span.end - span.start) / pair.count();
            const double start = static_cast<double>(span.start) +
                                 (static_cast<int>(i) - pair.first) * length;
            REQUIRE_THAT(attribute(svg, tag, "x"),
                         WithinAbs(left + pixels * start, 0.01));
            REQUIRE_THAT(attribute(svg, tag, "width"), WithinAbs(pixels * length, 0.02));
            row = attribute(svg, tag, "y");
            REQUIRE(row > row_above);
        }
    }
    REQUIRE(count_of(svg, " on stage ") ==
            static_cast<std::size_t>(timed.schedule.computations()));
}

std::vector<std::string> peaks_of(const Schedule& schedule, const KeptMemory& kept) {
    std::vector<std::string> peaks;
    for (const Holdings& peak : peak_holdings(schedule, kept)) {
        std::ostringstream text;
        text << peak.memory;
        peaks.push_back(text.str());
    }
    return peaks;
}

std::string without_colour(std::string text) {
    for (std::size_t at; (at = text.find('\x1b')) != std::string::npos;)
        text.erase(at, text.find('m', at) - at + 1);
    return text;
}

}  // namespace

TEST_CASE("GPipe is drawn in eighty columns", "[pipeline]") {
    REQUIRE(timed("gpipe", 3, 4)
                .text({80, false, "--svg"}, {.title = "GPipe", .memory = {}}) ==
            R"(GPipe
 stage 0|F0-F1-F2-F3-//////////////////B0====B1====B2====B3====|
 stage 1|///F0-F1-F2-F3-/////////B0====B1====B2====B3====//////|
 stage 2|//////F0-F1-F2-F3-B0====B1====B2====B3====////////////|
         +--------------+--------------+--------------+---------
    time 0              5              10             15
held, in micro-batches
0 peak 4|111222333444444444444444444444444444333333222222111111|
1 peak 4|...111222333444444444444444444333333222222111111......|
2 peak 4|......111222333444444444333333222222111111............|
F- forward  B= backward  0 1 2 micro-batch  / idle
)");
}

TEST_CASE("1F1B is drawn in eighty columns", "[pipeline]") {
    REQUIRE(timed("1f1b", 4, 4).text() ==
            R"( stage 0|F0-F1-F2-F3-//////////////////B0====///B1====///B2====///B3====|
 stage 1|///F0-F1-F2-////////////B0====F3-B1====///B2====///B3====//////|
 stage 2|//////F0-F1-//////B0====F2-B1====F3-B2====///B3====////////////|
 stage 3|/////////F0-B0====F1-B1====F2-B2====F3-B3====//////////////////|
         +--------------+--------------+--------------+--------------+---
    time 0              5              10             15             20
held, in micro-batches
0 peak 4|111222333444444444444444444444444444333333333222222222111111111|
1 peak 3|...111222333333333333333333333333333333222222222111111111......|
2 peak 2|......111222222222222222222222222222222222111111111............|
3 peak 1|.........111111111111111111111111111111111111..................|
F- forward  B= backward  0 1 2 micro-batch  / idle
)");
}

TEST_CASE("the halves of backward have different letters and fills", "[pipeline]") {
    REQUIRE(timed("zb-h1", 2, 4).text({60, false, "--svg"}) ==
            R"( stage 0|F0-F1-///I0=W0%F2-I1=W1%F3-I2=W2%I3=W3%|
 stage 1|///F0-I0=F1-I1=W0%F2-I2=W1%F3-I3=W2%W3%|
         +--------------+--------------+---------
    time 0              5              10
held, in micro-batches
0 peak 2|111222222222222222222222222222222111111|
1 peak 2|...111111222222222222222222222222222111|
F- forward  I= backward, inputs  W% backward, weights
0 1 2 micro-batch  / idle
)");
}

TEST_CASE("the second chunk has small letters", "[pipeline]") {
    REQUIRE(timed("interleaved", 2, 4).text() ==
            R"( stage 0|F0F1f0f1F2//b0==F3b1==f2B0==f3B1==//b2==//b3==B2==B3==|
 stage 1|//F0F1f0b0==f1b1==F2B0==F3B1==f2b2==f3b3==B2==B3==////|
         +---------+---------+---------+---------+---------+----
    time 0         5         10        15        20        25
held, in micro-batches of a chunk
0 peak 5|112233445555555555555555555555555544444433333322221111|
1 peak 3|..112233333333333333333333333333333333333322221111....|
F- forward  B= backward  F B chunk 0  f b chunk 1  0 1 2 micro-batch  / idle
)");
}

TEST_CASE("a schedule without room for numbers is drawn with letters", "[pipeline]") {
    const std::vector<std::string> lines = lines_of(timed("1f1b", 8, 24).text());
    REQUIRE(lines[0] ==
            " stage "
            "0|FFFFFF///////////BFBFBFB3FBFBFBFB7FBFBFBFB=FBFBFBFB=FB/B/B=B=/B/B/B=B=|");
    REQUIRE(lines[7] ==
            " stage "
            "7|/////FBFB1FBFBFBFB5FBFBFBFB9FBFBFBFB=FBFBFBFB=FBFBFBFB=FBFB///////////|");
}

TEST_CASE("short boxes between long ones are drawn too", "[pipeline]") {
    const Timed drawn = timed("1f1b", 1, 12, 1, {1, 25, 25, 0});
    const std::string row = lines_of(drawn.text())[0];
    INFO(row);
    REQUIRE(count_of(row, "F") == 12);
    REQUIRE(count_of(row, "B") == 12);
}

TEST_CASE("more than nine held micro-batches are shown as letters, many as ninths",
          "[pipeline]") {
    REQUIRE(contains(timed("gpipe", 2, 12).text(), "held, in micro-batches; c is 12\n"));
    const std::string many = timed("gpipe", 2, 90).text();
    REQUIRE(contains(many, "held, in micro-batches; 9 is 90\n"));
    REQUIRE(contains(many, "99999"));
}

TEST_CASE("every computation is a box of the SVG, at its time", "[pipeline]") {
    for (const std::string& name : schedule_names()) {
        require_boxes(timed(name, 4, 8));
        if (takes(name, {3, 6}))
            require_boxes(timed(name, 3, 6, 3, {18522, 18086, 9337, 601}));
        if (takes(name, {1, 1})) require_boxes(timed(name, 1, 1));
    }
}

TEST_CASE("all numbers of eight stages and 24 micro-batches can be read", "[pipeline]") {
    for (const std::string name : {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2"}) {
        const Timed drawn = timed(name, 8, 24, 3);
        const std::string svg = drawn.svg();
        INFO(name);
        REQUIRE(count_of(svg, " class=\"b\">") ==
                static_cast<std::size_t>(drawn.schedule.computations()));
        REQUIRE(count_of(svg, " class=\"b\">23<") ==
                static_cast<std::size_t>(drawn.schedule.computations() / 24));
        REQUIRE(attribute(svg, 0, "width") < 6100);
        for (std::size_t at = svg.find(" on stage "); at != std::string::npos;
             at = svg.find(" on stage ", at + 1))
            REQUIRE(attribute(svg, svg.rfind("<rect", at), "width") >= 14);
    }
}

TEST_CASE("pictures of all schedules are well formed", "[pipeline]") {
    for (const std::string& name : schedule_names()) {
        INFO(name);
        REQUIRE(is_balanced_xml(timed(name, 4, 8).svg()));
        REQUIRE(is_balanced_xml(timed(name, 8, 64, 8).svg()));
    }
    const std::string svg =
        timed("1f1b", 2, 2).svg({.title = "a < b & \"c\"", .memory = {}});
    REQUIRE(is_balanced_xml(svg));
    REQUIRE(contains(svg, ">a &lt; b &amp; &quot;c&quot;</text>"));
}

TEST_CASE("the drawn peaks equal the schedule's peaks", "[pipeline]") {
    for (const std::string& name : schedule_names()) {
        for (const KeptMemory kept : {KeptMemory{}, KeptMemory{2, 0.5}}) {
            const Timed drawn = timed(name, 4, 8);
            SchedulePicture picture;
            picture.memory = kept;
            const std::vector<std::string> peaks = peaks_of(drawn.schedule, kept);
            INFO(name);
            const std::string text = drawn.text({80, false, ""}, picture);
            REQUIRE(all_after(text, " peak ", '|') == peaks);
            REQUIRE(all_after(drawn.svg(picture), ">peak ", '<') == peaks);
        }
    }
}

TEST_CASE("no line of a picture is wider than requested", "[pipeline]") {
    for (const std::string& name : schedule_names()) {
        for (const Timed& drawn :
             {timed(name, 4, 8), timed(name, 20, 40), timed(name, 2, 4, 3, {7, 5, 3, 1}),
              timed(name, 2, 4, 3, {1'000'000'000, 1, 0, 0})}) {
            for (int width = 0; width <= 200; width += 7) {
                SchedulePicture picture;
                picture.title = "a title — which is rather long for forty columns";
                const std::string text = drawn.text({width, false, "--svg"}, picture);
                for (const std::string& line : lines_of(text)) {
                    INFO(name << " in " << width << ": " << line);
                    REQUIRE(columns_of(line) <= std::max(width, 40));
                }
            }
        }
    }
}

TEST_CASE("colour changes nothing but the colour of a picture", "[pipeline]") {
    const Timed drawn = timed("interleaved", 4, 8);
    const std::string coloured = drawn.text({80, true, "--svg"});
    REQUIRE(contains(coloured, "\x1b["));
    REQUIRE(without_colour(coloured) == drawn.text());
}

TEST_CASE("computations have the same colours and letters as phases in timelines",
          "[pipeline]") {
    const Timed drawn = timed("zb-h1", 2, 2);
    const Chart chart = schedule_chart(drawn.schedule, drawn.timing, {});
    RunReport report;
    Picoseconds time = 0;
    for (const char* phase : {"forward", "backward-input", "backward-weight"}) {
        report.trace.push_back({0, "compute", phase, "phase", time, time + 1, 0, 0, {}});
        ++time;
    }
    const Chart timeline = timeline_chart(report, "");
    for (const LegendEntry& entry : timeline.legend) {
        const Look& look = timeline.looks[entry.looks[0]];
        REQUIRE(std::ranges::find(chart.looks, look) != chart.looks.end());
        const std::string fill = "fill=\"" + colour_of(look).hex() + "\"";
        REQUIRE(contains(chart_svg(timeline), fill));
        REQUIRE(contains(chart_svg(chart), fill));
    }
    REQUIRE(timeline.legend.size() == 3);
}

TEST_CASE("only the bubble is hatched", "[pipeline]") {
    for (const std::string& name : schedule_names()) {
        const Timed drawn = timed(name, 4, 8);
        const std::string text = drawn.text({400, false, ""});
        const std::string row = lines_of(text)[0];
        const auto columns = row.find('|', row.find('|') + 1) - row.find('|') - 1;
        const double idle =
            static_cast<double>(drawn.timing.makespan - drawn.timing.stages[0].busy) /
            static_cast<double>(drawn.timing.makespan);
        INFO(name);
        REQUIRE_THAT(static_cast<double>(count_of(row, "/")),
                     WithinAbs(idle * static_cast<double>(columns), 0.001));
        REQUIRE(contains(text, "/ idle"));
        REQUIRE(count_of(drawn.svg(), "class=\"d\"") == 4 + 1);
    }
}

TEST_CASE("every number that fits into its box is shown", "[pipeline]") {
    // A unit is two columns, so a forward has room for one digit, a backward for two.
    const std::string row = lines_of(timed("1f1b", 2, 12).text({88, false, ""}))[1];
    INFO(row);
    for (int i = 0; i < 12; ++i) {
        if (i < 10) REQUIRE(contains(row, "F" + std::to_string(i)));
        REQUIRE(contains(row, "B" + std::to_string(i)));
    }
    REQUIRE(contains(row, "B11="));
}

TEST_CASE("nothing is outside of a picture", "[pipeline]") {
    for (const std::string& name : schedule_names())
        for (const Timed& drawn :
             {timed(name, 4, 8), timed(name, 8, 24, 3), timed(name, 2, 4),
              timed(name, 2, 4, 3, {1'000'000'000, 1, 0, 0})}) {
            INFO(name);
            REQUIRE(outside_of_viewport(drawn.svg()) == std::vector<std::string>());
        }
}

TEST_CASE("the picture of a period shows what stages compute and hold in it",
          "[pipeline]") {
    for (const char* name : {"pipedream", "pipedream-vertical", "pipedream-2bw"})
        for (const int stages : {2, 3, 5}) {
            CAPTURE(name, stages);
            const auto endless = make_endless_schedule(name, {stages, 2 * stages});
            const PeriodTiming period = time_period(*endless, {{2, 1, 2}});
            SchedulePicture picture;
            picture.window = period.window;
            const Chart chart = schedule_chart(period.sent, period.timing, picture);
            REQUIRE(chart.panels[0].end == period.length);
            const std::vector<Holdings> held = peak_holdings(period);
            for (std::size_t stage = 0; stage < held.size(); ++stage) {
                Picoseconds busy = 0;
                for (const Box& box : chart.panels[0].groups[stage].rows[0].boxes)
                    busy += box.end - box.start;
                CHECK(busy == period.busy[stage]);
                CHECK(chart.panels[1].groups[stage].strips[0].peak == held[stage].memory);
            }
        }
}

TEST_CASE("updates, meetings, pairs and versions are drawn", "[pipeline]") {
    Durations times{2, 1, 1};
    times.reduce = 3;
    times.update = 4;
    const Timed drawn = timed(make_schedule("dualpipe", {2, 4}), times);
    const std::string svg = drawn.svg();
    // On each of two stages, two chunks are reduced and updated.
    REQUIRE(count_of(svg, "<title>R on stage ") == 2);
    REQUIRE(count_of(svg, "<title>R.1 on stage ") == 2);
    REQUIRE(count_of(svg, "<title>U on stage ") == 2);
    REQUIRE(count_of(svg, "\noverlaps with B0") == 1);
    REQUIRE(contains(drawn.text({160, false, ""}), "R"));
    const Timed endless = timed(make_schedule("pipedream", {2, 4}), times);
    REQUIRE(count_of(endless.svg(), "version 3 of the weights is the newest") == 2);
    REQUIRE(contains(endless.text({160, false, ""}), "v3"));
}

TEST_CASE("forward, backward and its halves have four colours", "[pipeline]") {
    Schedule schedule = empty_schedule("mixed", {1, 2, 1});
    for (const char* work : {"F0", "B0", "F1", "I1", "W1"})
        schedule.work[0].push_back(read_instructions(work).front());
    const std::string svg = timed(schedule).svg();
    std::set<std::string> colours;
    for (std::size_t at = svg.find(" on stage "); at != std::string::npos;
         at = svg.find(" on stage ", at + 1))
        colours.insert(svg.substr(svg.rfind("fill=", at), 14));
    REQUIRE(colours.size() == 4);
}

TEST_CASE("each chunk has its own shade", "[pipeline]") {
    const std::string svg = timed("interleaved", 2, 2, 5).svg();
    std::set<std::string> shades;
    for (const char* work : {"F0", "F0.1", "F0.2", "F0.3", "F0.4"}) {
        const std::size_t at = svg.find("<title>" + std::string(work) + " on");
        shades.insert(svg.substr(svg.rfind("fill=", at), 14));
    }
    REQUIRE(shades.size() == 5);
    REQUIRE(contains(svg, ">chunk 4</text>"));
}

TEST_CASE("only messages that take time are drawn", "[pipeline]") {
    const Schedule schedule = with_messages(make_schedule("1f1b", {3, 4, 1}));
    const std::string free = timed(schedule).svg();
    REQUIRE_FALSE(contains(free, "message"));
    REQUIRE(count_of(free, " on stage ") == 24);
    const std::string svg = timed(schedule, {4, 4, 4, 1}).svg();
    REQUIRE(contains(svg, "<title>SA0 on stage 0, 4 to 5\n"));
    REQUIRE(contains(svg, "<title>RA0 on stage 1, 4 to 5\n"));
    // Four micro-batches cross two boundaries there and back; each message is counted
    // at both ends.
    REQUIRE(count_of(svg, " on stage ") == 24 + 32);
}

TEST_CASE("a box names what it waits for, and why it does not begin earlier",
          "[pipeline]") {
    const Schedule schedule =
        make_schedule("1f1b", {2, 2, 1});  // F0 F1 B0 B1; F0 B0 F1 B1
    const std::string svg = timed(schedule).svg();
    REQUIRE(contains(svg,
                     " data-box=\"s0.0\"><title>F0 on stage 0, 0 to 1\n"
                     "first of its stage</title>"));
    REQUIRE(contains(svg,
                     " data-box=\"s1.0\" data-waits=\"s0.0\">"
                     "<title>F0 on stage 1, 1 to 2\nbegins as F0 of stage 0 ends<"));
    REQUIRE(contains(
        svg,
        " data-box=\"s1.1\" data-waits=\"s1.0\">"
        "<title>B0 on stage 1, 2 to 4\nbegins when F0, the one before it, ends<"));
    const std::string away = timed(schedule, {1, 1, 1, 3}).svg();
    REQUIRE(contains(away,
                     "<title>F0 on stage 1, 4 to 5\n"
                     "begins as the message of F0 of stage 0 arrives<"));
    const std::string sent = timed(with_messages(schedule), {1, 1, 1, 3}).svg();
    REQUIRE(contains(sent,
                     "<title>F0 on stage 1, 4 to 5\n"
                     "begins as its message arrives<"));
    REQUIRE(contains(
        sent, "<title>SA0 on stage 0, 1 to 4\nbegins when F0, the one before it, ends<"));
    REQUIRE(
        contains(sent, "<title>SA1 on stage 0, 5 to 8\nbegins as F0 of stage 1 ends<"));
    // Times are in the picture's unit, not in its ticks.
    const Timed halves = timed(schedule, {1, 1, 1, 0});
    REQUIRE(contains(halves.svg({.title = "", .memory = {}, .ticks = 2}),
                     "<title>F0 on stage 1, 0.5 to 1\n"));
    // Messages without time are not drawn, so boxes do not wait for them.
    REQUIRE(contains(timed(with_messages(schedule)).svg(),
                     "<title>F0 on stage 1, 1 to 2\nbegins as F0 of stage 0 ends<"));
}

TEST_CASE("a picture of very many boxes stays small", "[pipeline]") {
    const Timed drawn = timed("1f1b", 64, 1024);
    const std::string svg = drawn.svg();
    REQUIRE(svg.size() < 3'000'000);
    REQUIRE(is_balanced_xml(svg));
    REQUIRE(attribute(svg, 0, "width") < 6100);
    REQUIRE(contains(svg, ">stage 63</text>"));
    const std::string text = drawn.text();
    REQUIRE(text.size() < 5'000);
    REQUIRE(contains(text, "(and 48 more stages, not drawn)\n"));
}

TEST_CASE("schedules at the limits are drawn", "[pipeline]") {
    const Durations nothing{0, 0, 0, 0};
    const Durations huge{Picoseconds{1} << 56, 1, 3, 0};
    for (const Timed& drawn :
         {timed("gpipe", 1, 1), timed("gpipe", 3, 4, 1, nothing),
          timed("zb-h2", 3, 4, 1, nothing), timed("1f1b", 1, 1, 1, huge),
          timed("zb-h1", 2, 3, 1, huge), timed("interleaved", 2, 2, 1024),
          timed("gpipe", 200, 1),
          timed(with_messages(make_schedule("1f1b", {2, 2, 1})), {0, 0, 0, 5})}) {
        for (const bool colour : {false, true}) {
            const std::string text = drawn.text({-3, colour, ""});
            REQUIRE(contains(text, "stage "));
            REQUIRE(contains(text, "held, in micro-batches"));
            REQUIRE(contains(text, "0 peak "));
        }
        REQUIRE(is_balanced_xml(drawn.svg()));
        REQUIRE_FALSE(contains(drawn.svg(), "nan"));
        REQUIRE_FALSE(contains(drawn.svg(), "inf"));
    }
    REQUIRE(contains(timed("gpipe", 200, 1).svg(), "136 more stages are not drawn"));
    SchedulePicture nothing_kept;
    nothing_kept.memory = KeptMemory{0, 0};
    REQUIRE(
        contains(timed("gpipe", 2, 2).text({80, false, ""}, nothing_kept), " peak 0|"));
    REQUIRE(is_balanced_xml(timed("gpipe", 2, 2).svg(nothing_kept)));
}

TEST_CASE("the longest times are drawn like short times", "[pipeline]") {
    const Timed drawn = timed("gpipe", 2, 2);
    Timed longer = drawn;
    constexpr Picoseconds kUnit = 440'000'000'000'000'003;
    longer.timing.makespan *= kUnit;
    for (std::vector<TimeSpan>& spans : longer.timing.spans)
        for (TimeSpan& span : spans)
            span = {span.start * kUnit, span.end * kUnit};
    const std::vector<std::string> lines = lines_of(drawn.text());
    const std::vector<std::string> longer_lines = lines_of(longer.text());
    REQUIRE(longer_lines[0] == lines[0]);
    REQUIRE(longer_lines[1] == lines[1]);
    require_boxes(longer);
}

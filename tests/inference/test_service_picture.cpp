// The picture of a service. Its boxes are the passes and the waits between passes.

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/inference/service_picture.hpp"
#include "tests/balanced_xml.hpp"
#include "tests/catch.hpp"
#include "tests/count_of.hpp"
#include "tests/refusal.hpp"
#include "tests/svg_bounds.hpp"

namespace lockstep::test {

namespace {

constexpr Picoseconds kPass = 1'000'000;

/// A pass that begins at time `at`, counted in passes.
ServedPass pass_at(Picoseconds at, std::int64_t pages,
                   std::vector<ServedPass::Piece> pieces) {
    return {at * kPass, (at + 1) * kPass, pages, std::move(pieces)};
}

/// Request 0 has a prompt of two passes, and gets three tokens. Request 1 arrives in the
/// middle of the first pass and waits for a page. It gets two tokens, loses its pages,
/// and continues later.
ServiceTrace small_trace() {
    ServiceTrace trace;
    trace.title = "small";
    trace.pages = 4;
    trace.requests = {{0, 0, 6}, {1, kPass / 2, 3}};
    trace.passes = {
        pass_at(0, 1, {{0, 0, 4, false}}),
        pass_at(1, 3, {{0, 4, 2, true}, {1, 0, 3, true}}),
        pass_at(2, 3, {{0, 6, 1, true}, {1, 3, 1, true}}),
        pass_at(3, 2, {{0, 7, 1, true}}),
        pass_at(6, 2, {{1, 0, 5, true}}),
    };
    return trace;
}

/// Returns each box's letter, begin and end, in passes, such as "P0-4 w4-6".
std::string boxes_of(const Chart& chart, const Row& row) {
    std::string text;
    for (const Box& box : row.boxes)
        text += fmt::format("{}{}{:g}-{:g}", text.empty() ? "" : " ",
                            chart.looks[static_cast<std::size_t>(box.look)].letter,
                            static_cast<double>(box.start) / kPass,
                            static_cast<double>(box.end) / kPass);
    return text;
}

const Row& row_called(const Chart& chart, const std::string& label) {
    const std::vector<Row>& rows = chart.panels.at(0).groups.at(0).rows;
    const auto found = std::ranges::find(rows, label, &Row::label);
    REQUIRE(found != rows.end());
    return *found;
}

}  // namespace

TEST_CASE("A service's picture has each pass and each wait", "[inference][chart]") {
    const Chart chart = service_chart(small_trace());
    CHECK(boxes_of(chart, row_called(chart, "passes")) == "P0-1 P1-2 t2-3 t3-4 P6-7");
    CHECK(boxes_of(chart, row_called(chart, "request 0")) == "P0-1 P1-2 t2-3 t3-4");
    CHECK(boxes_of(chart, row_called(chart, "request 1")) ==
          "w0.5-1 P1-2 t2-3 w3-6 A6-7");
    CHECK(row_called(chart, "passes").busy == 5. / 7);
    const Strip& pages = chart.panels.at(1).groups.at(0).strips.at(0);
    CHECK(pages.peak == 3);
    CHECK(pages.peak_at == kPass);

    const Panel& panel = chart.panels.at(0);
    const auto words = [&](const std::string& row, std::size_t box) {
        return panel.words_of(panel.groups.at(0), row_called(chart, row).boxes.at(box));
    };
    CHECK(words("passes", 1).tooltip ==
          "pass 1, 5 rows of prompts\n3 of 4 pages\n"
          "1 us to 2 us (1 us)");
    CHECK(words("request 0", 1).tooltip ==
          "request 0, rows 4 to 5, and token 0\nin pass 1\n1 us to 2 us (1 us)");
    CHECK(words("request 0", 2).tooltip ==
          "token 1 of request 0\nin pass 2\n2 us to 3 us (1 us)");
    CHECK(words("request 1", 3).tooltip == "request 1 waits\n3 us to 6 us (3 us)");
    CHECK(words("request 1", 4).tooltip ==
          "request 1, rows 0 to 4, once more, and token 2\nin pass 4\n"
          "6 us to 7 us (1 us)");
    CHECK(words("request 1", 1).labels == std::vector<std::string>{"3"});
}

TEST_CASE("A service's picture is drawn as text and as SVG", "[inference][chart]") {
    const Chart chart = service_chart(small_trace());
    const std::string text = chart_text(chart, {80, false, ""});
    CHECK_THAT(text, says("small\n"));
    CHECK_THAT(text, says("replica 0 passes"));
    CHECK_THAT(text, says("request 1"));
    CHECK_THAT(text, says("0 peak 3 pages"));
    CHECK_THAT(text, says("rows computed again, because the request was preempted"));
    const std::string svg = chart_svg(chart);
    CHECK(is_balanced_xml(svg));
    CHECK(outside_of_viewport(svg).empty());
    CHECK(count_of(svg, "<title>request 1 waits") == 2);
}

TEST_CASE("Prompts that are computed apart have a row of passes", "[inference][chart]") {
    ServiceTrace trace;
    trace.requests = {{7, 0, 2}};
    trace.prompts = {pass_at(0, 1, {{7, 0, 2, true}})};
    trace.passes = {pass_at(2, 1, {{7, 2, 1, true}}), pass_at(3, 1, {{7, 3, 1, true}})};
    const Chart chart = service_chart(trace);
    CHECK(boxes_of(chart, row_called(chart, "prompts")) == "P0-1");
    CHECK(boxes_of(chart, row_called(chart, "tokens")) == "t2-3 t3-4");
    CHECK(boxes_of(chart, row_called(chart, "request 7")) == "P0-1 w1-2 t2-3 t3-4");
    CHECK(chart.panels.size() == 3);
}

TEST_CASE("If there are many requests, the first ones are drawn until they end",
          "[inference][chart]") {
    ServiceTrace trace;
    for (std::int64_t id = 0; id < 40; ++id) {
        trace.requests.push_back({id, 0, 1});
        trace.passes.push_back(pass_at(id, 1, {{id, 0, 1, true}}));
    }
    const Chart chart = service_chart(trace);
    CHECK(chart.panels.at(0).note == "the first 24 of 40 requests");
    CHECK(chart.panels.at(0).groups.at(0).rows.size() == 1 + 24);
    CHECK(chart.panels.at(0).end == 24 * kPass);
    CHECK(row_called(chart, "passes").boxes.size() == 24);
    CHECK(chart.panels.at(1).groups.at(0).strips.at(0).levels.size() == 24);
}

TEST_CASE("A service without requests has a picture, too", "[inference][chart]") {
    ServiceTrace trace;
    trace.passes = {pass_at(0, 0, {})};
    CHECK(is_balanced_xml(chart_svg(service_chart(trace))));
    CHECK(!chart_text(service_chart(trace), {80, false, ""}).empty());
}

}  // namespace lockstep::test

#include <cmath>
#include <limits>

#include "src/core/require.hpp"
#include "src/run/run_report.hpp"
#include "tests/catch.hpp"

namespace lockstep {

namespace {

RunReport sample() {
    RunReport report;
    RankReport rank;
    rank.time = {1, 2, 3, 4, 6, 5'000'000'000'000};
    rank.memory.current = {1, 2, 3, 4, 5, 6};
    rank.memory.at_peak = {7, 8, 9, 10, 11, 12};
    rank.memory.peak = 57;
    rank.memory.category_peak = {13, 14, 15, 16, 17, 18};
    rank.traffic.push_back({"world", "all_reduce", true, 1, 2, 3, 4, 5});
    rank.flops = std::int64_t{1} << 50;
    rank.kept.emplace("x", HostTensor::of<float>({2, 2}, {1.5f, -0.0f, 3e-45f, 4}));
    rank.kept.emplace("nothing", HostTensor({3, 0}, DType::f64));
    rank.kept.emplace("scalar", HostTensor::of<std::int32_t>(Shape{}, {-7}));
    rank.kept_at["x"] = {"a/b.cpp", 11};
    rank.kept_parts["x"] = {{4, 2}, {2, 2}, {{0, 1, 2}}, 0};
    rank.series_at["loss"] = {"a/b.cpp", 13};
    rank.series["loss"] = {0.1, std::numeric_limits<double>::infinity(), 1e-300};
    report.ranks.push_back(rank);
    report.ranks.emplace_back();
    report.trace.push_back(
        {1, "compute", "matmul", "operation", 10, 20, 3, 40, {"a/b.cpp", 12}, "world"});
    report.flows.push_back({0, 1, "world", 5, 6, 7});
    report.memory_trace.push_back({1, 9, {1, 2, 3, 4, 5, 6}});
    return report;
}

}  // namespace

TEST_CASE("a report is read back from its bytes unchanged", "[report]") {
    const RunReport before = sample();
    const RunReport after = read_report(report_bytes(before));
    REQUIRE(after.ranks.size() == 2);
    const RankReport& a = before.ranks[0];
    const RankReport& b = after.ranks[0];
    CHECK(b.time.compute == a.time.compute);
    CHECK(b.time.communication == a.time.communication);
    CHECK(b.time.copy == a.time.copy);
    CHECK(b.time.waiting == a.time.waiting);
    CHECK(b.time.end == a.time.end);
    CHECK(b.memory.current == a.memory.current);
    CHECK(b.memory.at_peak == a.memory.at_peak);
    CHECK(b.memory.peak == a.memory.peak);
    CHECK(b.memory.category_peak == a.memory.category_peak);
    REQUIRE(b.traffic.size() == 1);
    CHECK(b.traffic[0].group == "world");
    CHECK(b.traffic[0].verb == "all_reduce");
    CHECK(b.traffic[0].between_nodes);
    CHECK(b.traffic[0].bytes_received == 5);
    CHECK(b.flops == a.flops);
    CHECK(b.kept == a.kept);
    CHECK(b.kept_at == a.kept_at);
    CHECK(b.kept_parts == a.kept_parts);
    CHECK(b.series == a.series);
    CHECK(b.series_at == a.series_at);
    REQUIRE(after.trace.size() == 1);
    CHECK(after.trace[0].name == "matmul");
    CHECK(after.trace[0].start == 10);
    CHECK(after.trace[0].at == SourceLine{"a/b.cpp", 12});
    CHECK(after.trace[0].communicator == "world");
    REQUIRE(after.flows.size() == 1);
    CHECK(after.flows[0].end == 6);
    REQUIRE(after.memory_trace.size() == 1);
    CHECK(after.memory_trace[0].bytes == before.memory_trace[0].bytes);
    CHECK(report_bytes(after) == report_bytes(before));
}

TEST_CASE("a NaN survives in a report's bytes", "[report]") {
    RunReport report;
    report.ranks.emplace_back().series["loss"] = {std::nan("")};
    const RunReport after = read_report(report_bytes(report));
    CHECK(std::isnan(after.ranks[0].series.at("loss")[0]));
}

TEST_CASE("bytes that are no report are refused", "[report][errors]") {
    CHECK_THROWS_AS(read_report("rubbish"), UsageError);
    CHECK_THROWS_AS(read_report(""), UsageError);
    std::string cut = report_bytes(sample());
    cut.resize(cut.size() / 2);
    CHECK_THROWS_AS(read_report(cut), UsageError);
}

}  // namespace lockstep

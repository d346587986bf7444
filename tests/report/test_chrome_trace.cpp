#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/report/chrome_trace.hpp"
#include "tests/catch.hpp"
#include "tests/report/support.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Library = nlohmann::json;

namespace {

std::vector<Library> events_of(const std::string& trace, const std::string& phase) {
    std::vector<Library> events;
    const Library json = Library::parse(trace);
    for (const Library& event : json["traceEvents"])
        if (event["ph"] == phase) events.push_back(event);
    return events;
}

/// Returns the time as it is stored by a reader that keeps only whole nanoseconds.
std::int64_t nanoseconds(const Library& microseconds) {
    return std::llround(microseconds.get<double>() * 1000);
}

/// Returns whether the slices of each thread are disjoint or nested.
bool slices_nest(const std::string& trace) {
    std::map<int, std::vector<std::int64_t>> open;
    for (const Library& slice : events_of(trace, "X")) {
        std::vector<std::int64_t>& ends = open[slice["tid"]];
        const std::int64_t start = nanoseconds(slice["ts"]);
        const std::int64_t end = start + nanoseconds(slice["dur"]);
        while (!ends.empty() && ends.back() <= start)
            ends.pop_back();
        if (!ends.empty() && end > ends.back()) return false;
        ends.push_back(end);
    }
    return true;
}

TraceEvent span(const char* queue, const char* name, Picoseconds start, Picoseconds end) {
    return {0,     queue,
            name,  queue == std::string("compute") ? "operation" : "communication",
            start, end,
            -1,    0,
            {}};
}

}  // namespace

TEST_CASE("every device of every run is a process and every queue a thread", "[report]") {
    const std::string trace = chrome_trace({{"one", small_run()}, {"two", small_run()}});
    std::map<int, std::string> processes;
    std::map<int, std::string> threads;
    for (const Library& event : events_of(trace, "M")) {
        if (event["name"] == "process_name") {
            REQUIRE(processes.emplace(event["pid"], event["args"]["name"]).second);
        } else if (event["name"] == "thread_name") {
            REQUIRE(threads.emplace(event["tid"], event["args"]["name"]).second);
        }
    }
    REQUIRE(processes == std::map<int, std::string>{{1, "one device 0"},
                                                    {2, "one device 1"},
                                                    {3, "two device 0"},
                                                    {4, "two device 1"}});
    REQUIRE(threads.size() == 8);
    REQUIRE(threads.at(1) == "compute");
    REQUIRE(threads.at(2) == "world");
}

TEST_CASE("device numbers have leading zeros, so that names sort as numbers",
          "[report]") {
    RunReport report = small_run();
    report.ranks.resize(100);
    const std::string trace = chrome_trace({{"", report}});
    REQUIRE(contains(trace, "\"device 07\""));
    REQUIRE(contains(trace, "\"device 99\""));
}

TEST_CASE("slices carry name, kind, times, bytes and line", "[report]") {
    const std::vector<Library> slices = events_of(chrome_trace({{"", small_run()}}), "X");
    REQUIRE(slices.size() == 28);
    REQUIRE(
        slices[0] ==
        Library{{"ph", "X"},
                {"name", "forward"},
                {"cat", "phase"},
                {"pid", 1},
                {"tid", 1},
                {"ts", 0},
                {"dur", 2},
                {"args", {{"micro_batch", 0}, {"bytes", 64}, {"at", "src/step.cpp:7"}}}});
    REQUIRE(slices[2]["name"] == "gelu");
    REQUIRE(slices[2]["ts"] == 1.5);
    REQUIRE(slices[2]["dur"] == 0.5);
}

TEST_CASE("the slices of a thread nest, in whatever order they were recorded",
          "[report]") {
    RunReport report = small_run();
    REQUIRE(slices_nest(chrome_trace({{"", report}})));
    std::reverse(report.trace.begin(), report.trace.end());
    const std::string trace = chrome_trace({{"", report}});
    REQUIRE(slices_nest(trace));
    REQUIRE_FALSE(contains(trace, "(2)"));
}

TEST_CASE("a wait is a slice of the compute queue and names its communicator",
          "[report]") {
    RunReport report = small_run();
    report.trace.push_back(first_wait());
    const std::string trace = chrome_trace({{"", report}});
    REQUIRE(slices_nest(trace));
    int waits = 0;
    int compute = -1;
    for (const Library& slice : events_of(trace, "X")) {
        if (slice["name"] == "matmul" && compute < 0) compute = slice["tid"];
        if (slice["cat"] != "wait") continue;
        ++waits;
        CHECK(slice["tid"] == compute);
        CHECK(slice["name"] == "wait for all_reduce");
        CHECK(slice["dur"] == 3);
        CHECK(slice["args"]["communicator"] == "world");
        CHECK(slice["args"]["at"] == "src/step.cpp:9");
    }
    CHECK(waits == 1);
}

TEST_CASE("slices nest when times are no whole nanoseconds", "[report]") {
    RunReport report;
    report.ranks.resize(1);
    std::uint64_t state = 7;
    const auto random = [&](std::uint64_t below) {
        state = state * 6364136223846793005 + 1442695040888963407;
        return static_cast<Picoseconds>((state >> 33) % below);
    };
    for (Picoseconds t = 0; report.trace.size() < 2000;) {
        const Picoseconds begin = t;
        const std::size_t phase = report.trace.size();
        report.trace.push_back(span("compute", "forward", t, t));
        for (int i = 0; i < 4; ++i) {
            const Picoseconds length = random(3000);
            report.trace.push_back(span("compute", "matmul", t, t + length));
            t += length;
        }
        report.trace[phase] = {0, "compute", "forward", "phase", begin, t, 0, 0, {}};
    }
    const std::string trace = chrome_trace({{"", report}});
    REQUIRE(events_of(trace, "X").size() == report.trace.size());
    REQUIRE(slices_nest(trace));
    REQUIRE(contains(trace, "\"end_ps\":" + std::to_string(report.trace[1].end)));
}

TEST_CASE("spans of a queue that overlap go to threads of their own", "[report]") {
    RunReport report;
    report.ranks.resize(1);
    report.trace = {span("world", "send", 0, 10'000),
                    span("world", "recv", 5'000, 15'000),
                    span("world", "send", 12'000, 20'000)};
    const std::string trace = chrome_trace({{"", report}});
    REQUIRE(slices_nest(trace));
    const std::vector<Library> slices = events_of(trace, "X");
    REQUIRE(slices.size() == 3);
    REQUIRE(contains(trace, "\"world (2)\""));
}

TEST_CASE("both ends of an arrow are inside slices and have one number", "[report]") {
    const std::string trace = chrome_trace({{"a", small_run()}, {"b", small_run()}});
    const std::vector<Library> starts = events_of(trace, "s");
    const std::vector<Library> ends = events_of(trace, "f");
    REQUIRE(starts.size() == 8);
    REQUIRE(ends.size() == 8);
    std::set<int> numbers;
    const auto inside_slice = [&](const Library& end) {
        for (const Library& slice : events_of(trace, "X")) {
            const std::int64_t at = nanoseconds(end["ts"]);
            const std::int64_t start = nanoseconds(slice["ts"]);
            if (slice["tid"] == end["tid"] && slice["pid"] == end["pid"] && at >= start &&
                at < start + nanoseconds(slice["dur"]))
                return slice["name"] == "all_reduce";
        }
        return false;
    };
    for (std::size_t i = 0; i < starts.size(); ++i) {
        REQUIRE(numbers.insert(starts[i]["id"].get<int>()).second);
        for (const char* key : {"id", "cat", "name"})
            REQUIRE(starts[i][key] == ends[i][key]);
        REQUIRE(ends[i]["bp"] == "e");
        REQUIRE(starts[i]["pid"] != ends[i]["pid"]);
        REQUIRE(inside_slice(starts[i]));
        REQUIRE(inside_slice(ends[i]));
    }
}

TEST_CASE("memory is a counter of each device by category", "[report]") {
    const std::vector<Library> counters =
        events_of(chrome_trace({{"", small_run()}}), "C");
    REQUIRE(counters.size() == 8);
    REQUIRE(counters[1]["pid"] == 1);
    REQUIRE(counters[1]["ts"] == 6);
    REQUIRE(counters[1]["args"]["gradients"] == 100);
    REQUIRE(counters[1]["args"]["activations"] == 0);
    REQUIRE(counters[1]["args"].size() == kMemoryCategories);
}

TEST_CASE("names of any kind make JSON that can be read", "[report]") {
    RunReport report;
    report.ranks.resize(1);
    report.trace = {span("wor\"ld\\", "a\n\x01\xff", 0, 10)};
    const std::string trace = chrome_trace({{"a \"run\"", report}});
    REQUIRE(events_of(trace, "X").size() == 1);
    REQUIRE(events_of(chrome_trace({}), "X").empty());
    REQUIRE(events_of(chrome_trace({{"empty", {}}}), "M").empty());
}

TEST_CASE("decimal numbers are exact", "[report]") {
    REQUIRE(decimal_text(0, 1000) == "0");
    REQUIRE(decimal_text(1500, 1000) == "1.5");
    REQUIRE(decimal_text(1005, 1000) == "1.005");
    REQUIRE(decimal_text(9'223'372'036'854'775'807, 1000) == "9223372036854775.807");
}

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "src/report/hta_trace.hpp"
#include "src/report/record.hpp"
#include "tests/catch.hpp"
#include "tests/report/support.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Library = nlohmann::json;

namespace {

Library events_of(const std::string& trace, const std::string& category) {
    Library found = Library::array();
    const Library json = Library::parse(trace);
    for (const Library& event : json["traceEvents"])
        if (event.value("cat", "") == category) found.push_back(event);
    return found;
}

std::vector<Library> steps_of(const std::string& trace) {
    std::vector<Library> steps;
    for (const Library& event : events_of(trace, "user_annotation"))
        if (event["name"].get<std::string>().starts_with("ProfilerStep#"))
            steps.push_back(event);
    return steps;
}

/// Returns the launch that HTA assigns to a kernel.
const Library& launch_of(const Library& launches, const Library& kernel) {
    for (const Library& launch : launches)
        if (launch["args"]["correlation"] == kernel["args"]["correlation"]) return launch;
    throw std::runtime_error("a kernel without its launch");
}

/// Three training steps on rank 0. Forward, backward and update each have a kernel of 5
/// us.
RunReport three_steps() {
    RunReport run;
    run.ranks.resize(1);
    Picoseconds t = 0;
    for (int step = 0; step < 3; ++step)
        for (const char* name : {"forward", "backward", "update"}) {
            const Picoseconds end = t + 5'000'000;
            run.trace.push_back({0, "compute", name, "phase", t, end, step, 0, {}});
            run.trace.push_back({0, "compute", "matmul", "operation", t, end, -1, 8, {}});
            t = end;
        }
    run.ranks[0].time.end = t;
    return run;
}

}  // namespace

TEST_CASE(
    "a rank's trace has the rank and the number of ranks where HTA searches for them",
    "[report]") {
    const std::string trace = hta_trace(small_run(), 1);
    REQUIRE(contains(trace, "\"distributedInfo\": {\"rank\": 1, \"world_size\": 2"));
    REQUIRE(Library::parse(trace)["distributedInfo"]["rank"] == 1);
}

TEST_CASE("operations are kernels on streams, and phases are not", "[report]") {
    const Library kernels = events_of(hta_trace(small_run(), 0), "kernel");
    REQUIRE(kernels.size() == 10);
    std::map<std::string, std::set<int>> streams;
    for (const Library& kernel : kernels) {
        REQUIRE(kernel["args"]["stream"] > 0);
        REQUIRE(kernel["args"]["stream"] == kernel["tid"]);
        streams[kernel["name"]].insert(kernel["args"]["stream"].get<int>());
    }
    const std::string all_reduce =
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)";
    REQUIRE(streams ==
            std::map<std::string, std::set<int>>{
                {"matmul", {1}}, {"gelu", {1}}, {"sgd", {1}}, {all_reduce, {2}}});
}

TEST_CASE("a wait is no kernel, however short", "[report]") {
    RunReport run = small_run();
    const std::string expected = hta_trace(run, 0);
    run.trace.push_back(first_wait());
    run.trace.back().start = run.trace.back().end - 1;
    CHECK(hta_trace(run, 0) == expected);
}

TEST_CASE("each kernel has one launch on the host, in a step that is not the last",
          "[report]") {
    for (const RunReport& run : {small_run(), three_steps()}) {
        const std::string trace = hta_trace(run, 0);
        const Library launches = events_of(trace, "cuda_runtime");
        const std::vector<Library> steps = steps_of(trace);
        std::set<int> numbers;
        for (const Library& kernel : events_of(trace, "kernel")) {
            const Library& launch = launch_of(launches, kernel);
            REQUIRE(numbers.insert(kernel["args"]["correlation"].get<int>()).second);
            REQUIRE(launch["ts"] <= kernel["ts"]);
            REQUIRE_FALSE(launch["args"].contains("stream"));
            REQUIRE(launch["ts"] < steps.back()["ts"]);
            REQUIRE(launch["ts"] >= steps.front()["ts"]);
        }
        REQUIRE(launches.size() == numbers.size());
    }
}

TEST_CASE(
    "a step begins at the first computation after an update, and one extra step follows",
    "[report]") {
    const std::vector<Library> steps = steps_of(hta_trace(three_steps(), 0));
    REQUIRE(steps.size() == 4);
    for (std::size_t k = 0; k < steps.size(); ++k) {
        REQUIRE(steps[k]["name"] == "ProfilerStep#" + std::to_string(k));
        REQUIRE(steps[k]["ts"] == 15 * k);
    }
    REQUIRE(steps[2]["dur"] == 15);
    // Without update phases, the whole run is one step.
    REQUIRE(steps_of(hta_trace(small_run(), 0)).size() == 2);
    REQUIRE(steps_of(hta_trace(RunReport{}, 0)).size() == 2);
}

TEST_CASE("times are whole numbers of a unit; no operation is shorter", "[report]") {
    RunReport run = three_steps();
    REQUIRE(Library::parse(hta_trace(run, 0))["lockstepUnitPicoseconds"] == 1'000'000);
    // Another rank communicates for seven nanoseconds, so the unit is 1 ns for both.
    run.ranks.resize(2);
    run.trace.push_back(
        {1, "world", "send + recv", "communication", 500, 7'500, -1, 4, {}});
    for (int rank : {0, 1}) {
        const std::string trace = hta_trace(run, rank);
        REQUIRE(Library::parse(trace)["lockstepUnitPicoseconds"] == 1'000);
        const Library kernels = events_of(trace, "kernel");
        REQUIRE(kernels.size() == (rank == 0 ? 9 : 1));
        for (const Library& kernel : kernels) {
            REQUIRE(kernel["ts"].is_number_integer());
            REQUIRE(kernel["dur"].is_number_integer());
            REQUIRE(kernel["dur"] > 0);
        }
    }
    const Library sent = events_of(hta_trace(run, 1), "kernel")[0];
    REQUIRE(sent["name"] == "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)");
    REQUIRE(sent["dur"] == 7);
}

TEST_CASE("kernels of a stream stay disjoint when their times are rounded", "[report]") {
    RunReport run;
    run.ranks.resize(1);
    std::uint64_t state = 3;
    Picoseconds t = 0;
    for (int i = 0; i < 500; ++i) {
        state = state * 6364136223846793005 + 1442695040888963407;
        const auto length = static_cast<Picoseconds>(1'000 + (state >> 33) % 9'999);
        run.trace.push_back({0, "compute", "add", "operation", t, t + length, -1, 0, {}});
        t += length;
    }
    std::int64_t end = 0;
    for (const Library& kernel : events_of(hta_trace(run, 0), "kernel")) {
        REQUIRE(kernel["ts"] >= end);
        REQUIRE(kernel["dur"] > 0);
        end = kernel["ts"].get<std::int64_t>() + kernel["dur"].get<std::int64_t>();
    }
}

TEST_CASE("copies between host and device are HTA's memory copies", "[report]") {
    RunReport run = three_steps();
    run.trace.push_back({0, "copy", "to_device", "copy", 0, 2'000'000, -1, 64, {}});
    const Library copies = events_of(hta_trace(run, 0), "gpu_memcpy");
    REQUIRE(copies.size() == 1);
    REQUIRE(copies[0]["name"] == "Memcpy to_device");
    REQUIRE(copies[0]["args"]["stream"] == 2);
}

TEST_CASE(
    "a record has a trace for each rank on request, and replaces all earlier traces",
    "[report]") {
    const TemporaryFolder folder;
    Record record;
    record.options.lesson = "some-lesson";
    record.outputs["x"] = HostTensor::of<double>({1}, {1});
    record.runs = {{"alone", three_steps()}, {"both", small_run()}};
    record.hta = true;
    write_record(folder / "run", record);
    REQUIRE(entries_in(folder / "run") == 8);
    REQUIRE(read_file(folder / "run/trace_rank_1.json") == hta_trace(small_run(), 1));

    record.runs.pop_back();
    write_record(folder / "run", record);
    REQUIRE(entries_in(folder / "run") == 7);
    REQUIRE(read_file(folder / "run/trace_rank_0.json") == hta_trace(three_steps(), 0));
    record.hta = false;
    write_record(folder / "run", record);
    REQUIRE(entries_in(folder / "run") == 6);

    write_file(folder / "run/trace_rank_x.json", "");
    REQUIRE(contains(refusal([&] { write_record(folder / "run", record); }),
                     "trace_rank_x.json, which is not part of a record"));
}

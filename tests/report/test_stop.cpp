// Tests the files that a run leaves after a mistake: the diagnosis as JSON, the picture
// of ranks that wait for ranks, and the trace up to the stop.

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "sim/cluster.hpp"
#include "src/report/compare.hpp"
#include "src/report/record.hpp"
#include "src/report/wait_graph.hpp"
#include "src/report/write_diagnosis.hpp"
#include "tests/catch.hpp"
#include "tests/report/support.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Library = nlohmann::json;

namespace {

FaultError fault_of(int ranks, const Program& program) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.workers = 1;
    options.trace = true;
    try {
        sim::make_cluster(std::move(options))->run(program);
    } catch (const FaultError& fault) {
        return fault;
    }
    FAIL("the program was found correct");
    throw std::logic_error("unreachable");
}

void ring(Rank& rank) {
    Device& device = rank.device();
    const int n = rank.size();
    const Tensor going = device.zeros({8}, DType::f32);
    const Tensor coming = device.zeros({8}, DType::f32);
    rank.world().all_reduce(going).wait();
    rank.world().send(going, (rank.index() + 1) % n).wait();
    rank.world().recv(coming, (rank.index() + n - 1) % n).wait();
}

void missing(Rank& rank) {
    const Tensor x = rank.device().zeros({8}, DType::f32);
    rank.world().all_reduce(x).wait();
    if (rank.index() == 1) return;
    rank.world().all_reduce(x).wait();
}

void counts(Rank& rank) {
    const Tensor x = rank.device().zeros({rank.index() == 2 ? 4 : 8}, DType::f32);
    rank.world().all_reduce(x).wait();
}

void circle_beside_others(Rank& rank) {
    const Tensor x = rank.device().zeros({8}, DType::f32);
    if (rank.index() < 2) {
        rank.world().recv(x, 1 - rank.index()).wait();
        rank.world().send(x, 1 - rank.index()).wait();
    }
    rank.world().all_reduce(x).wait();
}

/// Returns whether tags are closed in the right order, and no tag stays open.
bool is_well_formed(const std::string& xml) {
    std::vector<std::string> open;
    for (std::size_t at = xml.find('<'); at != std::string::npos;
         at = xml.find('<', at)) {
        const std::size_t end = xml.find('>', at);
        if (end == std::string::npos) return false;
        const std::string tag = xml.substr(at + 1, end - at - 1);
        at = end;
        if (tag.ends_with('/')) continue;
        if (tag.starts_with('/')) {
            if (open.empty() || open.back() != tag.substr(1)) return false;
            open.pop_back();
        } else {
            open.push_back(tag.substr(0, tag.find(' ')));
        }
    }
    return open.empty();
}

std::vector<Program> programs() {
    return {ring, missing, counts, circle_beside_others};
}

}  // namespace

TEST_CASE("a circle of waits is described from rank to rank", "[report][sim]") {
    const FaultError fault = fault_of(4, ring);
    const std::vector<Diagnosis::Wait>& waits = fault.diagnosis().waits;
    REQUIRE(waits.size() == 4);
    for (int rank = 0; rank < 4; ++rank) {
        const auto& wait = waits[static_cast<std::size_t>(rank)];
        CHECK(wait.from == std::vector<int>{rank});
        CHECK(wait.to == std::vector<int>{(rank + 1) % 4});
    }
    CHECK(circle_of(waits) == std::vector<std::size_t>{0, 1, 2, 3});
    CHECK(contains(fault.diagnosis().text(),
                   "In a circle: rank 0 → rank 1 → rank 2 → rank 3 → rank 0\n"));
}

TEST_CASE("a wait that leads to a circle is not part of it", "[report][sim]") {
    // Rank r sends to r + 1, and the last two ranks send to each other.
    const FaultError fault = fault_of(12, [](Rank& rank) {
        const Tensor x = rank.device().zeros({4}, DType::f32);
        const int last = rank.size() - 1;
        const int to = rank.index() == last ? last - 1 : rank.index() + 1;
        rank.world().send(x, to).wait();
    });
    CHECK(
        contains(fault.diagnosis().text(), "In a circle: rank 10 → rank 11 → rank 10\n"));
}

TEST_CASE("many ranks with the same wait are described as one", "[report][sim]") {
    const FaultError fault = fault_of(256, ring);
    const std::vector<Diagnosis::Wait>& waits = fault.diagnosis().waits;
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].from.size() == 256);
    CHECK(waits[0].to.size() == 256);
    CHECK(contains(fault.diagnosis().text(),
                   "In a circle: ranks 0–255 wait for one another\n"));
}

TEST_CASE("ranks that wait for a rank that has ended are in no circle", "[report][sim]") {
    const Diagnosis diagnosis = fault_of(4, missing).diagnosis();
    REQUIRE(diagnosis.waits.size() == 1);
    CHECK(diagnosis.waits[0].from == std::vector<int>{0, 2, 3});
    CHECK(diagnosis.waits[0].to == std::vector<int>{1});
    CHECK(circle_of(diagnosis.waits).empty());
    CHECK_FALSE(contains(diagnosis.text(), "circle"));
    const std::vector<WaitBox> boxes = wait_boxes(diagnosis);
    REQUIRE(boxes.size() == 2);
    CHECK(boxes[1].operation == "has ended");
    CHECK_FALSE(boxes[1].waits);
}

TEST_CASE("ranks that differ in a collective wait for each other", "[report][sim]") {
    const Diagnosis diagnosis = fault_of(4, counts).diagnosis();
    REQUIRE(diagnosis.waits.size() == 2);
    CHECK(diagnosis.waits[0].from == std::vector<int>{0, 1, 3});
    CHECK(diagnosis.waits[0].to == std::vector<int>{2});
    CHECK(diagnosis.waits[1].to == std::vector<int>{0, 1, 3});
    CHECK_FALSE(contains(diagnosis.text(), "circle"));
}

TEST_CASE("the boxes of a picture are in different places", "[report][sim]") {
    for (const Program& program : programs()) {
        for (const int ranks : {4, 6, 256}) {
            const std::vector<WaitBox> boxes =
                wait_boxes(fault_of(ranks, program).diagnosis());
            std::set<std::pair<std::size_t, std::size_t>> places;
            for (const WaitBox& box : boxes)
                places.emplace(box.column, box.row);
            CHECK(places.size() == boxes.size());
            CHECK(boxes.size() < 20);
        }
    }
}

TEST_CASE("a picture of waiting is well-formed, with the timeline below it",
          "[report][sim]") {
    for (const Program& program : programs()) {
        for (const int ranks : {4, 256}) {
            const FaultError fault = fault_of(ranks, program);
            REQUIRE(fault.report());
            const std::string svg = wait_svg(fault.diagnosis(), fault.report().get());
            CHECK(is_well_formed(svg));
            CHECK(svg == wait_svg(fault.diagnosis(), fault.report().get()));
            CHECK(contains(svg, "up to the stop"));
            CHECK(contains(svg, "(never ended)"));
            CHECK_FALSE(contains(wait_svg(fault.diagnosis()), "up to the stop"));
        }
    }
    CHECK(contains(wait_svg(fault_of(4, ring).diagnosis()), "waits in the circle"));
    CHECK(
        contains(wait_svg(fault_of(4, missing).diagnosis()), "waits for no other rank"));
    CHECK(is_well_formed(wait_svg(Diagnosis())));
}

TEST_CASE("a picture of many different ranks keeps them apart", "[report]") {
    Diagnosis diagnosis;
    for (int rank = 0; rank < 40; ++rank)
        diagnosis.waits.push_back(
            {{rank}, {(rank + 1) % 40}, "recv<&>", {"a.cpp", rank}});
    diagnosis.waits.push_back({{40, 41}, {3, 50}, std::string(300, 'x'), {"b.cpp", 1}});
    diagnosis.waits.push_back({{42}, {43}, "send", {"b.cpp", 2}});
    diagnosis.waits.push_back({{43}, {42}, "send", {"b.cpp", 3}});
    const std::vector<WaitBox> boxes = wait_boxes(diagnosis);
    std::set<std::pair<std::size_t, std::size_t>> places;
    for (const WaitBox& box : boxes)
        places.emplace(box.column, box.row);
    CHECK(places.size() == 44);
    CHECK(circle_of(diagnosis.waits).size() == 40);
    CHECK(is_well_formed(wait_svg(diagnosis)));
    CHECK(contains(diagnosis.text(), "rank 5 → … 34 more … → rank 0"));
}

TEST_CASE("a mistake carries its run's report", "[report][sim]") {
    const FaultError fault = fault_of(4, missing);
    REQUIRE(fault.report());
    const RunReport& report = *fault.report();
    REQUIRE(report.ranks.size() == 4);
    CHECK(report.makespan() > 0);
    CHECK(report.bytes_sent() > 0);
    const auto never = std::count_if(
        report.trace.begin(), report.trace.end(),
        [](const TraceEvent& event) { return event.name == "all_reduce (never ended)"; });
    CHECK(never == 3);
}

TEST_CASE("a diagnosis is JSON with all that is printed", "[report][sim]") {
    const Diagnosis diagnosis = fault_of(4, counts).diagnosis();
    const Library json = Library::parse(diagnosis_json(diagnosis));
    CHECK(json.at("fault") == "F02");
    CHECK(json.at("title") == diagnosis.title);
    CHECK(json.at("sentence") == diagnosis.sentence);
    CHECK(json.at("page") == "lessons/faults/F02.md");
    CHECK(json.at("communicator").at("name") == "world");
    CHECK(json.at("communicator").at("ranks") == Library{0, 1, 2, 3});
    CHECK(json.at("communicator").at("sequence") == 0);
    CHECK(json.at("time_picoseconds") == diagnosis.time);
    REQUIRE(json.at("parties").size() == 2);
    CHECK(json.at("parties")[1].at("ranks") == Library{2});
    CHECK(json.at("parties")[1].at("differs") == "count 4");
    CHECK(json.at("parties")[1].at("file") == "tests/report/test_stop.cpp");
    CHECK(json.at("parties")[1].at("line").get<int>() > 0);
    CHECK(json.at("waits").size() == 2);
    CHECK(json.at("waits")[0].at("to") == Library{2});
    const Library none = Library::parse(diagnosis_json(Diagnosis()));
    CHECK(none.at("communicator").is_null());
    CHECK(none.at("time_picoseconds").is_null());
    CHECK(none.at("fault").is_null());
}

TEST_CASE("a stopped run's files are written into the given folder", "[report][sim]") {
    const TemporaryFolder folder;
    const std::filesystem::path place = folder.path() / "deep" / "stopped";
    write_diagnosis(place, fault_of(4, ring));
    CHECK(entries_in(place) == 5);
    CHECK(read_file(place / "diagnosis.txt") == fault_of(4, ring).diagnosis().text());
    CHECK(Library::parse(read_file(place / "diagnosis.json")).at("fault") == "F11");
    CHECK(Library::parse(read_file(place / "trace.json")).contains("traceEvents"));
    CHECK(is_well_formed(read_file(place / "timeline.svg")));

    write_file(place / "notes.txt", "mine");
    write_diagnosis(place, FaultError(Diagnosis()));
    CHECK(entries_in(place) == 3);
    CHECK(read_file(place / "notes.txt") == "mine");
    CHECK_THROWS_AS(write_diagnosis(place / "notes.txt", fault_of(4, ring)),
                    std::system_error);
}

TEST_CASE(
    "the record of a stopped run has everything before the stop, and marks the stop",
    "[report]") {
    const TemporaryFolder folder;
    const std::filesystem::path place = folder.path() / "run";
    Record record;
    record.outputs["weight"] = HostTensor::of<double>({1}, {1});
    record.runs.emplace_back("before", small_run());
    record.stopped_by(fault_of(4, ring));
    write_record(place, record);
    const Library run = Library::parse(read_file(place / "run.json"));
    CHECK(run.at("stopped_by") == "F11");
    CHECK(run.at("check") == "cheap");
    CHECK(run.at("runs") == Library{"before", "stopped"});
    for (const char* name : {"diagnosis.txt", "diagnosis.json", "wait_for_graph.svg",
                             "metrics.json", "trace.json", "timeline.svg"})
        CHECK(std::filesystem::exists(place / name));
    CHECK(contains(read_file(place / "timeline.svg"), "stopped"));

    CHECK(contains(refusal([&] { compare_records(place, place, std::nullopt); }),
                   "a mistake ended this run early"));

    record.diagnosis.reset();
    write_record(place, record);
    CHECK_FALSE(std::filesystem::exists(place / "diagnosis.txt"));
    CHECK_FALSE(Library::parse(read_file(place / "run.json")).contains("stopped_by"));
}

TEST_CASE("only the first parties have a line of their own", "[report]") {
    Diagnosis diagnosis;
    diagnosis.fault = "F05";
    for (int rank = 0; rank < 256; ++rank)
        diagnosis.parties.push_back(
            {{rank}, "broadcast, root " + std::to_string(rank), "", {"a.cpp", 3}, {}});
    const std::string text = diagnosis.text();
    CHECK(contains(text,
                   "  rank 7: broadcast, root 7 at a.cpp:3\n"
                   "  ranks 8–255: each does something different\n"));
    CHECK(std::count(text.begin(), text.end(), '\n') < 20);
}

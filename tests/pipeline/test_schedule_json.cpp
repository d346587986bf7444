#include <nlohmann/json.hpp>

#include <fmt/format.h>

#include "src/pipeline/generators.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/pytorch_schedule.hpp"
#include "src/pipeline/schedule_json.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

using Json = nlohmann::json;

Schedule generated(const std::string& name) {
    return make_schedule(name, {4, 8, name == "interleaved" ? 3 : 1});
}

void check_same(const Schedule& read, const Schedule& written) {
    CHECK(read.stages == written.stages);
    CHECK(read.micro_batches == written.micro_batches);
    CHECK(read.chunks == written.chunks);
    CHECK(read.parts == written.parts);
    CHECK(read.work == written.work);
}

/// Times the schedule with forwards of 2, halves of 3 and 1, and messages of 0.5.
Json timed(const Schedule& schedule) {
    const std::vector<Durations> durations{{4, 6, 2, 1}};
    const Timing timing = time_schedule(schedule, durations);
    return Json::parse(
        timing_json(schedule, timing,
                    {durations, 2, KeptMemory{10, 4}, nullptr, nullptr, /*spans=*/true}));
}

}  // namespace

TEST_CASE("every generator's schedule survives JSON and CSV", "[pipeline]") {
    for (const std::string& name : schedule_names())
        for (const bool messages : {false, true}) {
            INFO(name << (messages ? " with messages" : ""));
            const Schedule order = generated(name);
            const Schedule schedule = messages ? with_messages(order) : order;
            const Schedule json =
                read_schedule_json(schedule_json(schedule), "a.json").schedule;
            check_same(json, schedule);
            CHECK(json.name == name);
            CHECK(json.file == "a.json");
            const Schedule csv =
                read_schedule_csv(schedule_csv(schedule), "folder/b.csv");
            check_same(csv, schedule);
            CHECK(csv.name == "b");
        }
}

TEST_CASE("a schedule with parts and weight versions of its own survives JSON",
          "[pipeline]") {
    Schedule schedule = empty_schedule("two \"ways\"", {2, 2, 2});
    schedule.parts = {{0, 1}, {1, 0}};
    schedule.work = {
        {{InstructionKind::forward, 0, 0, 3}, {InstructionKind::backward, 1, 1}}, {}};
    const Schedule read = read_schedule_json(schedule_json(schedule), "a.json").schedule;
    check_same(read, schedule);
    CHECK(read.name == schedule.name);
}

TEST_CASE("a timing as JSON has every figure in the unit shown", "[pipeline]") {
    const Json json = timed(make_schedule("1f1b", {2, 3, 1}));
    CHECK(json["name"] == "1f1b");
    CHECK(json["stages"] == 2);
    CHECK(json["durations"]["forward"] == Json({2.0, 2.0}));
    CHECK(json["durations"]["backward_input"] == Json({3.0, 3.0}));
    CHECK(json["durations"]["backward_weight"] == Json({1.0, 1.0}));
    CHECK(json["durations"]["comm"] == Json({0.5, 0.5}));
    CHECK(json["ideal"] == 18.0);
    CHECK(json["bubble_time"] ==
          json["longest_stage"].get<double>() - json["ideal"].get<double>());
    CHECK(json["in_flight"] == Json({2, 1}));
    CHECK(json["between_halves"] == Json({0, 0}));
    CHECK(json["weight_versions"] == Json({1, 1}));
    CHECK(json["peak_memory"] == Json({20.0, 10.0}));
    CHECK(json["start"] == Json({0.0, 2.5}));
    CHECK(json["end"][0] == json["makespan"]);
    CHECK(json["spans"][0][0] == Json({0.0, 2.0}));
    CHECK(json["spans"][1].size() == json["schedule"][1].size());
    CHECK(json["critical_path"][0]["instruction"] == "F0");
    CHECK(json["critical_path"].back()["end"] == json["makespan"]);
    for (const std::size_t stage : {0U, 1U})
        CHECK(json["idle"][stage] ==
              json["end"][stage].get<double>() - json["start"][stage].get<double>() - 18);
}

TEST_CASE("a computation's duration covers all chunks of a stage", "[pipeline]") {
    const Json json = timed(make_schedule("interleaved", {2, 2, 3}));
    CHECK(json["durations"]["forward"] == Json({6.0, 6.0}));
    CHECK(json["durations"]["comm"] == Json({0.5, 0.5}));
}

TEST_CASE("a timing's document says how messages were charged", "[pipeline]") {
    const Schedule order = make_schedule("gpipe", {2, 2, 1});
    const auto sentence = [](const Schedule& schedule) {
        return timed(schedule)["communication"].get<std::string>();
    };
    CHECK(sentence(order).find("never wait for one another") != std::string::npos);
    CHECK(sentence(with_messages(order)).find("one at a time") != std::string::npos);
}

TEST_CASE("a timing's document is read back as its schedule", "[pipeline]") {
    for (const std::string& name : schedule_names()) {
        INFO(name);
        const Schedule schedule = with_messages(generated(name));
        check_same(read_schedule_json(timed(schedule).dump(), "a.json").schedule,
                   schedule);
        // The program's own output, line by line, must be read back as the same schedule.
        const Timing timing = time_schedule(schedule, {{}});
        const std::string text = timing_json(schedule, timing, {{{}}, 1, {}});
        check_same(read_schedule_json(text, "a.json").schedule, schedule);
    }
}

}  // namespace lockstep::test

#include <system_error>

#include "src/core/require.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/timer.hpp"
#include "src/pipeline/validate.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/temporary_folder.hpp"

namespace lockstep::test {

namespace {

struct Refusal {
    std::string text;
    std::vector<std::string> words;
};

void check_sentence(const std::string& sentence, const std::vector<std::string>& words) {
    for (const std::string& word : words) {
        INFO("'" << word << "' in: " << sentence);
        CHECK(sentence.find(word) != std::string::npos);
    }
    INFO(sentence);
    CHECK(sentence.find('\n') == std::string::npos);
    CHECK(sentence.find("json.exception") == std::string::npos);
    CHECK(sentence.size() < 500);
}

void check_json_refused(const std::vector<Refusal>& cases) {
    for (const Refusal& each : cases)
        check_sentence(
            message_of<UsageError>([&] { read_schedule_json(each.text, "mine.json"); }),
            each.words);
}

void check_csv_refused(const std::vector<Refusal>& cases) {
    for (const Refusal& each : cases)
        check_sentence(
            message_of<UsageError>([&] { read_schedule_csv(each.text, "mine.csv"); }),
            each.words);
}

std::string problem_of(const Schedule& schedule) {
    const std::optional<ScheduleProblem> problem = find_problem(schedule);
    return problem ? problem->sentence : "(no problem)";
}

}  // namespace

TEST_CASE("a JSON schedule gives names, sizes, parts and lines", "[pipeline]") {
    const Schedule schedule = read_schedule_json(R"({
  "name": "mine", "micro_batches": 2,
  "stages": 2,
  "chunks": 1,
  "schedule": [["F0", "F1",
                "B0", "B1"],
               ["F0", "B0", "F1", "B1"]],
  "parts": [[1], [0]]
})",
                                                 "mine.json")
                                  .schedule;
    CHECK(schedule.name == "mine");
    CHECK(schedule.file == "mine.json");
    CHECK(schedule.stages == 2);
    CHECK(schedule.micro_batches == 2);
    CHECK(schedule.parts == std::vector<std::vector<int>>{{1}, {0}});
    CHECK(schedule.at({0, 1}).line == 5);
    CHECK(schedule.at({0, 2}).line == 6);
    CHECK(schedule.at({1, 3}).line == 7);
    CHECK(schedule.where({0, 2}).starts_with("mine.json:6: stage 0, instruction 3 of 4"));
}

TEST_CASE("sizes that a file leaves out follow from its instructions", "[pipeline]") {
    const Schedule two =
        read_schedule_json(R"({"schedule": [["F0.1", "F6"], []]})", "folder/mine.json")
            .schedule;
    CHECK(two.name == "mine");
    CHECK(two.stages == 2);
    CHECK(two.micro_batches == 7);
    CHECK(two.chunks == 2);
    CHECK(two.parts == std::vector<std::vector<int>>{{0, 2}, {1, 3}});
    const Schedule held =
        read_schedule_json(R"({"schedule": [["F0"]], "parts": [[0, 1]]})", "mine.json")
            .schedule;
    CHECK(held.chunks == 2);
}

TEST_CASE("a byte order mark and CRLF change nothing", "[pipeline]") {
    const Schedule json =
        read_schedule_json("\xEF\xBB\xBF{\r\n\"schedule\":\r\n[[\"F0\",\r\n\"B0\"]]}\r\n",
                           "mine.json")
            .schedule;
    CHECK(json.at({0, 0}).line == 3);
    CHECK(json.at({0, 1}).line == 4);
    const Schedule csv = read_schedule_csv("\xEF\xBB\xBF# note\r\nF0,B0\r\n", "mine.csv");
    CHECK(csv.stages == 1);
    CHECK(csv.of_stage(0).size() == 2);
    CHECK(csv.at({0, 1}).line == 2);
    CHECK(problem_of(csv) == "(no problem)");
}

TEST_CASE("invalid JSON is refused with line and column", "[pipeline]") {
    check_json_refused({
        {"", {"mine.json is empty"}},
        {" \r\n\n", {"mine.json is empty"}},
        {"F0,B0\n", {"mine.json:1: this is not JSON, at column 1: invalid literal"}},
        {std::string("\x7f"
                     "ELF\x02\x01\0\0",
                     8),
         {"mine.json:1: this is not JSON, at column 1"}},
        {"{\n \"schedule\": [[\"F0\",]]}",
         {"mine.json:2: this is not JSON, at column 21: unexpected ']'"}},
        {"{\n\"schedule\":\n[[\"F0\"]", {"mine.json:3", "unexpected end of input"}},
        {"{\"name\": \"a\nb\"}", {"mine.json:1", "control character"}},
        {"{\"name\": \"\xff\"}", {"mine.json:1", "ill-formed UTF-8"}},
        {"{\"schedule\": [[\"F0\"]]} {}", {"mine.json:1", "column 24", "unexpected '{'"}},
        {"{\"micro_batches\": 1e999}", {"mine.json:1", "\"1e999\" is too large"}},
        {"{\"name\": \"" + std::string(100'000, 'x'), {"mine.json:1", "missing closing"}},
    });
}

TEST_CASE("JSON that is no schedule is refused with its line", "[pipeline]") {
    check_json_refused({
        {"[]", {"mine.json:1: the file is a list; an object with the key \"schedule\""}},
        {"\n3\n", {"mine.json:2: the file is 3;"}},
        {"{}", {"mine.json: \"schedule\" is missing", "a list for each stage"}},
        {"{\"schedule\": []}", {"mine.json: there is no stage"}},
        {"{\"schedule\": [[], []]}", {"mine.json: no instruction names a micro-batch"}},
        {"{\n\"schedule\": {}}",
         {"mine.json:2: \"schedule\" is an object; a list with a list for each stage"}},
        {"{\n\"schedule\": null}", {"mine.json:2: \"schedule\" is null;"}},
        {"{\"schedule\":\n[[\"F0\"],\n\"F0\"]}",
         {"mine.json:3: stage 1 of \"schedule\" is \"F0\"; a list of instructions"}},
        {"{\"schedule\": [[\"F0\",\n7\n]]}",
         {"mine.json:2: stage 0's instruction 2 is 7; text such as \"F0\""}},
        {"{\"schedule\": [[\"F0\",\n[\"B0\"]]]}",
         {"mine.json:2: stage 0's instruction 2 is a list;"}},
        {"{\"schedule\": [[\"F0\",\n\"X1\"]]}",
         {"mine.json:2: \"X1\" is no instruction", "F, B, I, W, SA, RA, SG and RG",
          "F3.1", "R and U"}},
        {"{\"schedule\": [[\"\"]]}", {"mine.json:1: \"\" is no instruction"}},
        {"{\"schedule\": [[\"F\\n1\"]]}", {"mine.json:1: \"F\\n1\" is no instruction"}},
        {"{\"schedule\": [[\"" + std::string(10'000, 'F') + "\"]]}",
         {"FFFF…\" is no instruction"}},
        {"{\n\"chunk\": 2}",
         {"mine.json:2: the key \"chunk\" is not known", "\"chunks\""}},
        {"{\"schedule\": [[\"F0\"]],\n\"schedule\": []}",
         {"mine.json:2: the key \"schedule\" is there twice"}},
        {"{\"name\": 3}", {"mine.json:1: \"name\" is 3; text is expected"}},
    });
}

TEST_CASE("impossible sizes are refused with their line", "[pipeline]") {
    const std::string rest = ",\n\"schedule\": [[\"F0\"], [\"F0\"]]}";
    const auto whole = [&](const std::string& key, const std::string& value,
                           const std::string& most) {
        return Refusal{"{\n\"" + key + "\": " + value + rest,
                       {"mine.json:2: \"" + key + "\" is " + value +
                        "; a whole number from 1 to " + most + " is expected"}};
    };
    check_json_refused({
        whole("micro_batches", "0", "1000000"),
        whole("micro_batches", "-3", "1000000"),
        whole("micro_batches", "1.5", "1000000"),
        whole("micro_batches", "1e300", "1000000"),
        whole("micro_batches", "1000001", "1000000"),
        whole("micro_batches", "18446744073709551615", "1000000"),
        whole("micro_batches", "true", "1000000"),
        whole("micro_batches", "\"2\"", "1000000"),
        whole("stages", "16385", "16384"),
        whole("chunks", "2000", "1024"),
        {"{\n\"stages\": 3" + rest,
         {"mine.json:2: \"stages\" is 3, but there are lists for 2"}},
        {"{\"micro_batches\": 1000000, \"chunks\": 8" + rest,
         {"mine.json: a pipeline of 2 stages", "16000000 forwards"}},
        {"{\"schedule\": [[\"F1000000\"]]}",
         {"mine.json:1: \"F1000000\" names micro-batch 1000000; at most 1000000"}},
        {"{\"schedule\": [[\"F2147483647\"]]}", {"mine.json:1", "at most 1000000"}},
        {"{\"schedule\": [[\"F2147483648\"]]}", {"mine.json:1", "F2147483648", "large"}},
        {"{\"schedule\": [[\"99999999999F0\"]]}", {"mine.json:1", "too large"}},
        {"{\"schedule\": [[\"R.1024\"]]}",
         {"mine.json:1: \"R.1024\" names chunk 1024; at most 1024"}},
    });
    std::string lists;
    for (int stage = 0; stage < 16'385; ++stage)
        lists += stage == 0 ? "[]" : ",\n[]";
    check_json_refused({{"{\"schedule\": [" + lists + "]}",
                         {"mine.json:16385: this is stage 16384", "at most 16384"}}});
}

TEST_CASE("a JSON schedule gives times and memory of parts and links", "[pipeline]") {
    const LoadedSchedule loaded = read_schedule_json(R"({
  "schedule": [["F0", "B0"], ["F0", "B0"], ["F0", "B0"]],
  "queues": "by direction",
  "times": {"forward": [1, 2.5, 3], "backward": 3, "message": [0.25, 0.5, 0],
            "links": {"1-2": 4}, "recompute": 1, "update": 0.5, "reduce": 2,
            "overlapped": 5},
  "memory": {"activations": [1, 2, 3], "weights": 0.5}
})",
                                                     "mine.json");
    CHECK(loaded.schedule.queues == MessageQueues::by_direction);
    REQUIRE((loaded.times && loaded.memory));
    const TickedTimes ticked = lockstep::ticked(*loaded.times, loaded.schedule);
    CHECK(ticked.per_unit == 4);
    CHECK(ticked.times.by_part);
    REQUIRE(ticked.times.each.size() == 3);
    const Durations& second = ticked.times.each[1];
    CHECK(second.forward == 10);
    CHECK(second.backward_input == 6);
    CHECK(second.backward_weight == 6);
    CHECK(second.message == 2);
    CHECK(second.recompute == 4);
    CHECK(second.update == 2);
    CHECK(second.reduce == 8);
    CHECK(second.overlapped == 20);
    CHECK(ticked.times.links.at({1, 2}) == 16);
    CHECK(loaded.memory->of_part(2) == KeptMemory{3, 1, 0, 0.5});
    const Timing timing = time_schedule(loaded.schedule, ticked.times);
    // Forwards take 1, 2.5 and 3, backwards 4 each, messages 0.25 and 4 in each
    // direction.
    CHECK(timing.makespan == 4 * (6.5 + 12 + 2 * 4.25));
}

TEST_CASE("impossible times and memory are refused with their line", "[pipeline]") {
    const auto refused = [](const std::string& member, std::vector<std::string> words) {
        return Refusal{"{\"schedule\": [[\"F0\"], [\"F0\"]],\n" + member + "}",
                       std::move(words)};
    };
    check_json_refused({
        refused("\"times\": 3", {"mine.json:2: \"times\" is 3; an object with amounts"}),
        refused(
            "\"times\": {\"forwards\": 3}",
            {"mine.json:2: the key \"forwards\" is not known", "forward, backward_in"}),
        refused("\"times\": {\"forward\": 1,\n\"forward\": 1}",
                {"mine.json:3: the key \"forward\" is there twice"}),
        refused("\"times\": {\"forward\": \"1\"}",
                {"mine.json:2: \"forward\" of \"times\" is \"1\"; a number, or a list"}),
        refused("\"times\": {\"forward\": [1, [2]]}", {"mine.json:2", "is a list"}),
        refused("\"times\": {\"forward\": -1}",
                {"mine.json:2: \"forward\" of \"times\": '-1' is not a number from 0"}),
        refused("\"times\": {\"forward\": 1e-10}", {"mine.json:2", "would be rounded"}),
        refused("\"times\": {\"backward\": 1, \"backward_input\": 1}",
                {"mine.json:2: \"backward\" gives both halves"}),
        refused("\"times\": {\"backward\": 0.000000001}",
                {"mine.json:2", "whose half would be rounded"}),
        refused("\"times\": {\"links\": 3}",
                {"mine.json:2: \"links\" of \"times\" is 3; an object"}),
        refused("\"times\": {\"links\": {\"1-0\": 3}}",
                {"mine.json:2: \"1-0\" is no link; two stages, the lower first"}),
        refused("\"times\": {\"links\": {\"0-1\": 3, \"0-1\": 3}}",
                {"mine.json:2: the link \"0-1\" is there twice"}),
        refused("\"times\": {\"links\": {\"0-1\": [3]}}", {"mine.json:2", "is a list"}),
        refused("\"memory\": []", {"mine.json:2: \"memory\" is a list; an object"}),
        refused("\"memory\": {\"gradients\": 1}",
                {"mine.json:2: the key \"gradients\" is not known", "\"for_weights\""}),
        refused(
            "\"memory\": {\"weights\": [1, 2, 3]}",
            {"mine.json:2: \"weights\" of \"memory\" has 3 numbers; one for all parts, "
             "or 2"}),
        refused("\"memory\": {\"weights\": []}", {"mine.json:2", "is an empty list"}),
        refused("\"memory\": {\"weights\": -1}",
                {"mine.json:2: \"weights\" of \"memory\" is -1; a number from 0"}),
        refused("\"queues\": \"two\"",
                {"mine.json:2: \"queues\" is \"two\"; \"one\" or \"by direction\""}),
    });
    check_json_refused({
        refused(
            "\"times\": {\"forward\": [1, 2, 3]}",
            {"mine.json:2: of \"times\", forward has 3 numbers; one for all parts, or "
             "2, one per part"}),
        refused("\"times\": {\"forward\": []}",
                {"mine.json:2: \"forward\" of \"times\" is an empty list"}),
        refused("\"times\": {\"overlapped\": []}", {"mine.json:2", "is an empty list"}),
        refused("\"times\": {\"backward\": []}", {"mine.json:2", "is an empty list"}),
        refused("\"times\": {\"links\": {\"0-2\": 1}}",
                {"mine.json:2: the link \"0-2\" of \"times\" names stage 2; there are 2 "
                 "stages"}),
    });
}

TEST_CASE("parts that do not fit the stages are refused", "[pipeline]") {
    const std::string begin = "{\"schedule\": [[\"F0\"], [\"F0\"]],\n\"parts\": ";
    check_json_refused({
        {begin + "3}", {"mine.json:2: \"parts\" is 3;"}},
        {begin + "[]}", {"mine.json:2: \"parts\" has 0 lists for 2 stages"}},
        {begin + "[[0]]}", {"mine.json:2: \"parts\" has 1 list for 2 stages"}},
        {begin + "[[0], [1, 2]]}",
         {"mine.json:2: \"parts\" has 2 numbers for stage 1; one for each of 1 chunk"}},
        {begin + "[0, 1]}",
         {"mine.json:2: stage 0 of \"parts\" is 0; a list of numbers"}},
        {begin + "[[0],\n[-1]]}", {"mine.json:3: a part of the model is -1;"}},
        {begin + "[[0], [\"1\"]]}", {"mine.json:2: a part of the model is \"1\";"}},
    });
}

TEST_CASE("the program's other outputs in a schedule's file are ignored", "[pipeline]") {
    const Schedule schedule =
        read_schedule_json(
            R"({"makespan": 3, "durations": {"forward": [1], "schedule": 7, "odd": {}},
            "spans": [[[0, 1], [[]]]], "communication": "text", "schedule": [["F0", "B0"]],
            "idle": []})",
            "mine.json")
            .schedule;
    CHECK(schedule.instructions() == 2);
    CHECK(problem_of(schedule) == "(no problem)");
}

TEST_CASE("a CSV schedule has one line per stage", "[pipeline]") {
    const Schedule schedule = read_schedule_csv(
        "# a \"comment, with a quote\n\nF0, F1 ,,B0,\"B1\"\n  # "
        "another\n,F0,B0,F1,B1,,\n\n",
        "mine.csv");
    CHECK(schedule.stages == 2);
    CHECK(schedule.micro_batches == 2);
    CHECK(schedule.of_stage(0).size() == 4);
    CHECK(schedule.at({0, 3}) == Instruction{InstructionKind::backward, 1});
    CHECK(schedule.at({0, 0}).line == 3);
    CHECK(schedule.at({1, 0}).line == 5);
    CHECK(problem_of(schedule) == "(no problem)");
}

TEST_CASE("a CSV schedule may be separated by semicolons or tabs", "[pipeline]") {
    for (const std::string separator : {";", "\t"}) {
        const Schedule schedule =
            read_schedule_csv("# a, b\nF0" + separator + "B0\n", "mine.csv");
        CHECK(schedule.of_stage(0).size() == 2);
    }
}

TEST_CASE("a stage may have only empty cells", "[pipeline]") {
    const Schedule schedule = read_schedule_csv("F0,B0\n,\n", "mine.csv");
    CHECK(schedule.stages == 2);
    CHECK(problem_of(schedule) ==
          "mine.csv: stage 1 never runs the forward of "
          "micro-batch 0, which stage 0's instruction 1 (F0, line 1) names");
}

TEST_CASE("CSV that is no schedule is refused with its line", "[pipeline]") {
    check_csv_refused({
        {"", {"mine.csv is empty"}},
        {"# nothing\n\n", {"mine.csv is empty"}},
        {"F0,B0\nF0,Z0\n", {"mine.csv:2: \"Z0\" is no instruction", "F, B, I, W"}},
        {"F0 B0\n", {"mine.csv:1: \"F0 B0\" is no instruction"}},
        {"F0\n\"B0\n", {"mine.csv, row 2, column 1: the quote is not closed"}},
        {std::string("F0\nB\0", 5), {"mine.csv:2: this is not CSV text", "byte 0"}},
        {"R,U\n", {"mine.csv: no instruction names a micro-batch"}},
    });
}

TEST_CASE("problems of a schedule from a file name the file and the line", "[pipeline]") {
    const auto problem = [](const std::string& lists) {
        return problem_of(
            read_schedule_json("{\"schedule\": [" + lists + "]}", "mine.json").schedule);
    };
    check_sentence(problem("[\"F0\",\n\"F0\", \"B0\"]"),
                   {"mine.json:2: stage 0, instruction 2 of 3", "was done before"});
    check_sentence(problem("[\"F0\", \"B0\"], []"),
                   {"mine.json: stage 1 never runs the forward of micro-batch 0"});
    check_sentence(problem("[\"F0\",\n\"F1\", \"B0\"]"),
                   {"mine.json:1: stage 0 never runs the backward of micro-batch 1, "
                    "which stage 0's instruction 2 (F1, line 2) names"});
    check_sentence(problem("[\"B0\",\n\"F0\"]"), {"mine.json:1: stage 0, instruction 1"});
    check_sentence(
        problem("[\"F0\", \"B0\", \"F1\", \"B1\"], [\"F1\", \"B1\", \"F0\", \"B0\"]"),
        {"mine.json: deadlock after 1 of 8 computations"});
}

TEST_CASE("the end of a file's name decides how it is read", "[pipeline]") {
    const TemporaryFolder folder;
    const std::string csv = "F0,B0\n";
    const std::string json = R"({"schedule": [["F0", "B0"]]})";
    CHECK(load_schedule(folder.file("a.csv", csv)).schedule.instructions() == 2);
    CHECK(load_schedule(folder.file("a.json", json)).schedule.instructions() == 2);
    CHECK(load_schedule(folder.file("a", json)).schedule.instructions() == 2);
}

TEST_CASE("files that cannot be read are refused", "[pipeline]") {
    const TemporaryFolder folder;
    const auto usage = [](const std::filesystem::path& path) {
        return message_of<UsageError>([&] { load_schedule(path); });
    };
    check_sentence(usage(folder.path()), {folder.path().string(), "this is not a file"});
    check_sentence(usage("/dev/zero"), {"/dev/zero", "this is not a file"});
    check_sentence(
        message_of<std::system_error>([&] { load_schedule(folder / "no.json"); }),
        {"no.json", "No such file"});
    const std::filesystem::path huge = folder.file("huge.json", "{}");
    std::filesystem::resize_file(huge, (std::uintmax_t{64} << 20) + 1);
    check_sentence(usage(huge), {"huge.json is larger than 64 MiB, the limit"});
}

TEST_CASE("a deadlock in a file names the lines of the waiting instructions",
          "[pipeline]") {
    const Schedule schedule =
        read_schedule_csv("# mine\nF0,B0,F1,B1\nF1,B1,F0,B0\n", "mine.csv");
    CHECK(
        problem_of(schedule) ==
        "mine.csv: deadlock after 1 of 8 computations: stage 0's instruction 2, backward "
        "of micro-batch 0 (B0), line 2 waits for stage 1's instruction 4, backward of "
        "micro-batch 0 (B0), line 3, before which instruction 1 (F1) must be done; stage "
        "1's instruction 1, forward of micro-batch 1 (F1), line 3 waits for stage 0's "
        "instruction 3, forward of micro-batch 1 (F1), line 2, before which instruction "
        "2 (B0) must be done, which closes the cycle");
}

}  // namespace lockstep::test

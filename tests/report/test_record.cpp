#include <array>
#include <fcntl.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <unistd.h>

#include <fmt/format.h>

#include "src/os/descriptor.hpp"
#include "src/report/files.hpp"
#include "src/report/record.hpp"
#include "src/report/version.hpp"
#include "src/report/write_diagnosis.hpp"
#include "src/text/json.hpp"
#include "tests/catch.hpp"
#include "tests/report/support.hpp"

using namespace lockstep;
using namespace lockstep::test;
using Library = nlohmann::json;

namespace {

Record some_record() {
    Record record;
    record.options = {
        "gradient-accumulation", "sim", 2, DType::f64, 18446744073709551615u, "classroom",
        {{"targets", "3"}},      25,    {}};
    record.inputs["x"] = HostTensor::of<double>({2}, {1, 2});
    record.outputs["reference/weight"] = HostTensor::of<double>({2}, {3, 4});
    record.checks = {Check::at_most("difference", 1e-14, 1e-13),
                     Check::equal("bytes", 1000, 1001)};
    record.runs.emplace_back("data_parallel", small_run());
    return record;
}

}  // namespace

TEST_CASE("a check passes at its bound and never with a NaN", "[report]") {
    const double nan = std::numeric_limits<double>::quiet_NaN();
    REQUIRE(Check::at_most("", 1, 1).passed);
    REQUIRE_FALSE(Check::at_most("", 1.5, 1).passed);
    REQUIRE_FALSE(Check::at_most("", nan, 1).passed);
    REQUIRE_FALSE(Check::at_most("", 1, nan).passed);
    REQUIRE(Check::equal("", 2, 2).passed);
    REQUIRE_FALSE(Check::equal("", 2, 3).passed);
    REQUIRE_FALSE(Check::equal("", nan, nan).passed);
}

TEST_CASE("run.json says what was run, where, and by which version", "[report]") {
    const Library json = Library::parse(run_json(some_record()));
    REQUIRE(json["lockstep"] == kVersion);
    REQUIRE(json["lesson"] == "gradient-accumulation");
    REQUIRE(json["backend"] == "sim");
    REQUIRE(json["ranks"] == 2);
    REQUIRE(json["dtype"] == "f64");
    REQUIRE(json["seed"] == 18446744073709551615u);
    REQUIRE(json["cluster"] == "classroom");
    REQUIRE(json["sum_length"] == 25);
    REQUIRE(json["settings"] == Library{{"targets", "3"}});
    REQUIRE(json["runs"] == Library{"data_parallel"});
    REQUIRE(json["machine"]["cores"] > 0);
    REQUIRE(json["machine"]["cpu"] != "");
    REQUIRE(json["machine"]["compiler"] != "");
}

TEST_CASE("metrics.json has every rank's time, traffic, memory and series", "[report]") {
    const Library json = Library::parse(metrics_json(some_record()));
    REQUIRE(json["checks"][0] == Library{{"name", "difference"},
                                         {"figure", 1e-14},
                                         {"relation", "at most"},
                                         {"bound", 1e-13},
                                         {"passed", true}});
    REQUIRE(json["checks"][1]["relation"] == "equal");
    REQUIRE(json["checks"][1]["passed"] == false);
    const Library& run = json["runs"][0];
    REQUIRE(run["name"] == "data_parallel");
    REQUIRE(run["makespan_picoseconds"] == 20'000'000);
    REQUIRE(run["bytes_sent"] == 256);
    REQUIRE(run["messages_sent"] == 8);
    const Library& rank = run["ranks"][1];
    REQUIRE(rank["rank"] == 1);
    REQUIRE(rank["time_picoseconds"]["communication"] == 6'000'000);
    REQUIRE(rank["flops"] == 12345);
    REQUIRE(rank["memory_bytes"]["peak"] == 210);
    REQUIRE(rank["memory_bytes"]["at_peak"]["parameters"] == 0);
    REQUIRE(rank["traffic"][0]["verb"] == "all_reduce");
    REQUIRE(rank["traffic"][0]["link"] == "inside node");
    REQUIRE(rank["series"]["loss"] == Library{0.5, 0.25});
}

TEST_CASE("metrics.json keeps a run's roof and what a program says it means",
          "[report]") {
    Record record = some_record();
    record.runs.front().second.roof = {1, 2, 3};
    record.runs.front().second.ranks[1].intended = {
        {"F21", "the sum over tasks", "", SourceLine::of("train.cpp", 12)}};
    const Library json = Library::parse(metrics_json(record));
    const Library& run = json["runs"][0];
    CHECK(run["roof_picoseconds"] ==
          Library{{"products", 1}, {"memory", 2}, {"links", 3}});
    CHECK(run["ranks"][0]["intended"].empty());
    const Library& meant = run["ranks"][1]["intended"][0];
    CHECK(meant["fault"] == "F21");
    CHECK(meant["why"] == "the sum over tasks");
}

TEST_CASE("metrics.json does not depend on the order of traffic or on the trace",
          "[report]") {
    Record record = some_record();
    auto& traffic = record.runs[0].second.ranks[0].traffic;
    traffic.push_back({"world", "send", false, 1, 1, 8, 0, 0});
    const std::string before = metrics_json(record);
    std::swap(traffic.front(), traffic.back());
    record.runs[0].second.trace.clear();
    record.runs[0].second.flows.clear();
    REQUIRE(metrics_json(record) == before);
}

TEST_CASE("numbers that are not finite are strings in JSON", "[report]") {
    const double infinity = std::numeric_limits<double>::infinity();
    Record record = some_record();
    record.checks = {
        Check::at_most("loss", std::numeric_limits<double>::quiet_NaN(), infinity)};
    record.runs[0].second.ranks[0].series["loss"] = {-infinity, 0.1};
    const Library json = Library::parse(metrics_json(record));
    REQUIRE(json["checks"][0]["figure"] == "NaN");
    REQUIRE(json["checks"][0]["bound"] == "Infinity");
    REQUIRE(json["runs"][0]["ranks"][0]["series"]["loss"] == Library{"-Infinity", 0.1});
    REQUIRE(json_number(0.1) == "0.1");
    REQUIRE(json_quoted("a\"\n\xff") == "\"a\\\"\\n\xef\xbf\xbd\"");
}

TEST_CASE("a record is a folder of six files, or four without a trace", "[report]") {
    const TemporaryFolder folder;
    Record record = some_record();
    write_record(folder / "a/b", record);
    REQUIRE(entries_in(folder / "a/b") == 6);
    REQUIRE(read_safetensors(folder / "a/b/inputs.safetensors") == record.inputs);
    REQUIRE(read_safetensors(folder / "a/b/outputs.safetensors") == record.outputs);
    REQUIRE(read_file(folder / "a/b/metrics.json") == metrics_json(record));
    REQUIRE(contains(read_file(folder / "a/b/trace.json"), "traceEvents"));
    REQUIRE(contains(read_file(folder / "a/b/timeline.svg"), "<svg"));
    const RunOptions options = read_run_options(folder / "a/b");
    REQUIRE(options.lesson == record.options.lesson);
    REQUIRE(options.seed == record.options.seed);
    REQUIRE(options.dtype == DType::f64);
    REQUIRE(options.sum_length == 25);
    REQUIRE(options.settings == record.options.settings);

    record.runs[0].second.trace.clear();
    write_record(folder / "a/b", record);
    REQUIRE(entries_in(folder / "a/b") == 4);
    REQUIRE(entries_in(folder / "a") == 1);
}

TEST_CASE(
    "a record replaces an earlier one or an empty folder; its path may end with a slash",
    "[report]") {
    const TemporaryFolder folder;
    Record record = some_record();
    write_record(folder.path(), record);
    record.outputs["reference/weight"].set(0, 5);
    write_record(folder.path() / "", record);
    REQUIRE(read_safetensors(folder / "outputs.safetensors") == record.outputs);
    REQUIRE(entries_in(folder.path()) == 6);
}

TEST_CASE("files of a killed process are no obstacle and are removed", "[report]") {
    const TemporaryFolder folder;
    std::filesystem::create_directory(folder / ".lockstep-a1b2c3");
    write_file(folder / ".lockstep-a1b2c3/metrics.json", "half");
    write_file(folder / ".lockstep-a1b2c3/made-by-process", "999999999");
    write_record(folder.path(), some_record());
    REQUIRE(entries_in(folder.path()) == 6);
}

TEST_CASE("files that only look like a killed process's files stay", "[report][errors]") {
    for (const std::string name :
         {".lockstep-notes", ".lockstep-999999999", ".lockstep-", ".lockstep-0"}) {
        const TemporaryFolder folder;
        std::filesystem::create_directory(folder / name);
        write_file(folder / name / "thesis.txt", "precious");
        const std::string sentence =
            "this folder has " + name + ", which is not part of a record";
        CHECK(contains(refusal([&] { require_record_folder(folder.path()); }), sentence));
        CHECK(contains(refusal([&] { write_record(folder.path(), some_record()); }),
                       sentence));
        CHECK(read_file(folder / name / "thesis.txt") == "precious");
        write_file(folder / name / "made-by-process", "me");
        CHECK(refusal([&] { write_record(folder.path(), some_record()); }) != "");
        CHECK(read_file(folder / name / "thesis.txt") == "precious");
    }
}

TEST_CASE("a file with a record's name stays if the record had no such file",
          "[report][errors]") {
    const TemporaryFolder folder;
    Record record = some_record();
    record.runs[0].second.trace.clear();
    write_record(folder.path(), record);
    write_file(folder / "timeline.svg", "mine");
    CHECK(contains(refusal([&] { write_record(folder.path(), record); }),
                   "this folder has timeline.svg, which is not part of a record"));
    CHECK(read_file(folder / "timeline.svg") == "mine");
    std::filesystem::remove(folder / "timeline.svg");
    CHECK(refusal([&] { write_record(folder.path(), record); }) == "");

    std::string json = read_file(folder / "run.json");
    json.replace(json.find("\"files\""), 7, "\"notes\"");  // as in an earlier version
    write_file(folder / "run.json", json);
    CHECK(refusal([&] { write_record(folder.path(), record); }) == "");
    CHECK(entries_in(folder.path()) == 4);
}

TEST_CASE("a folder with other files is refused and not changed", "[report][errors]") {
    const TemporaryFolder folder;
    write_file(folder / "thesis.tex", "years");
    REQUIRE(contains(refusal([&] { write_record(folder.path(), some_record()); }),
                     "this folder has thesis.tex, which is not part of a record"));
    REQUIRE(refusal([&] { require_record_folder(folder.path()); }) != "");
    REQUIRE(entries_in(folder.path()) == 1);
    REQUIRE(read_file(folder / "thesis.tex") == "years");

    std::filesystem::create_directory(folder / "earlier");
    write_record(folder / "earlier", some_record());
    write_file(folder / "earlier/notes.txt", "mine");
    REQUIRE(contains(refusal([&] { write_record(folder / "earlier", some_record()); }),
                     "notes.txt"));
    REQUIRE(refusal([&] { write_record(folder / "thesis.tex", some_record()); }) != "");
    REQUIRE(refusal([&] { write_record("", some_record()); }) != "");
    REQUIRE(refusal([&] { require_record_folder(folder / "new"); }) == "");
}

TEST_CASE("files that only have a record's names are refused and not changed",
          "[report][errors]") {
    const TemporaryFolder folder;
    write_file(folder / "trace.json", "someone's");
    REQUIRE(contains(refusal([&] { write_record(folder.path(), some_record()); }),
                     "run.json is missing"));
    for (const char* other :
         {"{}", "", "[1]", R"({"lockstep":"0.1.0"})", "{\"lesson\":1}"}) {
        write_file(folder / "run.json", other);
        REQUIRE(contains(refusal([&] { write_record(folder.path(), some_record()); }),
                         "this is not the run.json of a record"));
        REQUIRE(read_file(folder / "run.json") == other);
    }
    REQUIRE(entries_in(folder.path()) == 2);
}

TEST_CASE("a full disk leaves the earlier record whole and nothing else",
          "[report][errors]") {
    const TemporaryFolder folder;
    Record record = some_record();
    write_record(folder.path(), record);
    const std::string metrics = read_file(folder / "metrics.json");
    Record larger = record;
    larger.outputs["large"] = HostTensor(Shape{1 << 16}, DType::f64);
    larger.checks.clear();
    std::string message;
    try {
        const FullDisk full(1 << 14);
        write_record(folder.path(), larger);
    } catch (const std::system_error& error) {
        message = error.what();
    }
    REQUIRE(message == folder.path().string() + ": File too large");
    REQUIRE(entries_in(folder.path()) == 6);
    REQUIRE(read_file(folder / "metrics.json") == metrics);
    REQUIRE(read_safetensors(folder / "outputs.safetensors") == record.outputs);

    try {
        const FullDisk full(1 << 14);
        write_record(folder / "new", larger);
        FAIL("a record was written on a full disk");
    } catch (const std::system_error&) {
    }
    REQUIRE_FALSE(std::filesystem::exists(folder / "new"));
}

TEST_CASE("a place that cannot be written is named", "[report][errors]") {
    try {
        write_record("/proc/lockstep-record", some_record());
        FAIL("a record was written to /proc");
    } catch (const std::system_error& error) {
        REQUIRE(contains(error.what(), "/proc/lockstep-record: "));
    }
}

TEST_CASE("a test write of a record leaves nothing", "[report][errors]") {
    const TemporaryFolder folder;
    const auto refused = [](const std::filesystem::path& place) -> std::string {
        try {
            require_record_folder(place);
        } catch (const std::runtime_error& error) {
            return error.what();
        }
        return "";
    };
    CHECK(refused(folder.path()) == "");
    CHECK(refused(folder / "a/b/../c") == "");
    CHECK(refused("/proc/record") == "/proc/record: nothing can be written in /proc");
    CHECK(contains(refused("/sys/record"), "/sys/record: "));
    CHECK(contains(refused("/dev/null/record"), "Not a directory"));
    CHECK(contains(refused(folder / std::string(300, 'a')), "File name too long"));
    CHECK(
        contains(refused(folder / ("a/" + std::string(300, 'a'))), "File name too long"));
    {
        const FullDisk full(0);
        CHECK(contains(refused(folder / "a"), "File too large"));
    }
    CHECK(entries_in(folder.path()) == 0);

    std::filesystem::create_symlink("nowhere", folder / "link");
    std::filesystem::create_symlink("loop", folder / "loop");
    CHECK(
        contains(refused(folder / "link"), "link is a link whose target does not exist"));
    CHECK(contains(refused(folder / "link/run"),
                   "link is a link whose target does not exist"));
    CHECK(contains(refused(folder / "loop"), "Too many levels of symbolic links"));
}

TEST_CASE("a file replaces only a file", "[report][errors]") {
    const TemporaryFolder folder;
    REQUIRE(::mkfifo((folder / "pipe").c_str(), 0600) == 0);
    CHECK(contains(refusal([&] { write_text_file(folder / "pipe", "text"); }),
                   "pipe: this is a pipe from which nobody reads"));
    const os::Descriptor reader(::open((folder / "pipe").c_str(), O_RDONLY | O_NONBLOCK));
    write_text_file(folder / "pipe", "text");
    require_writable_file(folder / "pipe");  // writes nothing
    const os::Pipe pipe = os::make_pipe();
    write_text_file(fmt::format("/dev/fd/{}", pipe.writing.number()), "text");
    for (const int end : {reader.number(), pipe.reading.number()}) {
        std::array<char, 8> got{};
        CHECK(::read(end, got.data(), got.size()) == 4);
        CHECK(std::string(got.data()) == "text");
    }
    CHECK(contains(refusal([] { write_text_file("/dev/null", "text"); }),
                   "/dev/null: this exists and is not a file"));
    CHECK(std::filesystem::is_character_file("/dev/null"));

    write_file(folder / "file", "old");
    std::filesystem::create_symlink("file", folder / "link");
    write_text_file(folder / "link", "new");
    CHECK(std::filesystem::is_symlink(folder / "link"));
    CHECK(read_file(folder / "file") == "new");
    require_writable_file(folder / "file");
    require_writable_file(folder / "other");
    CHECK(read_file(folder / "file") == "new");
    CHECK(entries_in(folder.path()) == 3);
}

TEST_CASE("a diagnosis does not change other files", "[report]") {
    const TemporaryFolder folder;
    write_file(folder / "trace.json", "mine");
    write_diagnosis(folder.path(), FaultError(Diagnosis()));
    CHECK(read_file(folder / "trace.json") == "mine");
}

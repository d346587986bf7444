#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/grader/report/grade_report.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"
#include "src/text/wrap.hpp"
#include "tests/balanced_xml.hpp"
#include "tests/catch.hpp"
#include "tests/grader/sample_grades.hpp"
#include "tests/temporary_folder.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using namespace lockstep::test;
using Catch::Matchers::WithinAbs;
using Library = nlohmann::json;

namespace {

std::string written(const GradeReport& report, GradeFormat format) {
    return grade_text_of(report, format, 80, false);
}

Library written_json(const GradeReport& report, GradeFormat format = GradeFormat::json) {
    return Library::parse(written(report, format));
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos;
         at = text.find(part, at + 1))
        ++found;
    return found;
}

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

/// Not for coloured text, which has escape sequences of our own.
bool has_control_characters(const std::string& text) {
    return std::ranges::any_of(text, [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return (byte < 0x20 && c != '\n') || byte == 0x7F;
    });
}

GradeReport finished() {
    using enum Mark;
    return sample_grade({passed, failed, not_written, passed});
}

}  // namespace

TEST_CASE("The figures add up in every format and at every stage", "[grader]") {
    for (const auto& [name, report] : sample_grades()) {
        CAPTURE(name);
        const int earned = report.build_failure ? 0 : report.earned();
        const Library own = written_json(report);
        CHECK(own.at("earned") == earned);
        CHECK(own.at("points") == report.points());
        int sum = 0;
        for (const Library& one : own.at("criteria"))
            sum += one.at("earned").get<int>();
        CHECK(sum == earned);
        if (!report.stopped.empty()) continue;

        const Library gradescope = written_json(report, GradeFormat::gradescope);
        CHECK(gradescope.at("score") == earned);
        int score = 0;
        for (const Library& test : gradescope.at("tests"))
            score += test.at("score").get<int>();
        CHECK(score == earned);

        const Library prairielearn = written_json(report, GradeFormat::prairielearn);
        CHECK(prairielearn.at("gradable") == !report.build_failure);
        if (report.build_failure) continue;
        int points = 0;
        for (const Library& test : prairielearn.at("tests"))
            points += test.at("points").get<int>();
        CHECK(points == earned);
        CHECK_THAT(prairielearn.at("score").get<double>() * report.points(),
                   WithinAbs(earned, 1e-12));
    }
}

TEST_CASE("No format has the control characters of a program's text",
          "[grader][hostile]") {
    for (const auto& [name, report] : sample_grades())
        for (const auto& [format_name, format] : kGradeFormats) {
            CAPTURE(name, format_name);
            const std::string text = written(report, format);
            CHECK_FALSE(has_control_characters(text));
            CHECK(is_utf8(text));
            CHECK_FALSE(contains(text, "\xe2\x80\xae"));  // lets text run backwards
            CHECK(text.back() == '\n');
        }
}

TEST_CASE("Ten megabytes from a hundred criteria fit into PrairieLearn's megabyte",
          "[grader][hostile]") {
    const GradeReport report = longest_grade();
    for (const auto& [name, format] : kGradeFormats) {
        CAPTURE(name);
        const std::size_t limit = format == GradeFormat::junit ? 4'000'000 : 1'000'000;
        CHECK(written(report, format).size() < limit);
    }
    const Library one = written_json(report).at("criteria").at(0);
    const auto said = one.at("said").get<std::string>();
    CHECK(contains(said, "[these are the first "));
    const std::size_t all = longest_grade().criteria[0].said.size() - 1;
    CHECK(all > (10 << 20) - 2);
    CHECK(contains(said, " of " + std::to_string(all) + " bytes]"));
}

TEST_CASE("A cut text says so, and ends with a whole character", "[grader][hostile]") {
    CHECK(clean_lines("0123456789", {10, 9}) == "0123456789");
    CHECK(clean_lines("0123456789a", {10, 9}) ==
          "0123456789\n[these are the first 10 of 11 bytes]");
    CHECK(clean_lines("a\nb\nc\n", {99, 3}) == "a\nb\nc");
    CHECK(clean_lines("a\nb\nc\nd", {99, 3}) ==
          "a\nb\nc\n[these are the first 6 of 7 bytes]");
    CHECK(clean_line("ééé", 3) == "éé…");
    CHECK(clean_line("ééé\n", 6) == "ééé");
}

TEST_CASE("Unprintable characters are shown as escapes", "[grader][hostile]") {
    const TextLimit limit{1000, 10};
    CHECK(clean_lines("a\tb\n\tc", limit) == "a       b\n        c");
    CHECK(clean_lines("a\r\nb\rc", limit) == "a\nb\nc");
    CHECK(clean_lines(std::string("\0\x1b[31m", 6), limit) == "\\x00\\x1b[31m");
    CHECK(clean_lines("\xff\xc2\x9b", limit) == "\\xff\\x9b");
    CHECK(clean_lines("\xe2\x80\xae\xef\xbf\xbf", limit) == "\\u{202e}\\u{ffff}");
    CHECK(clean_lines("学é", limit) == "学é");
    CHECK(clean_line("a\r\nb", 99) == "a  b");
}

TEST_CASE("The JSON has the outcome of each criterion", "[grader]") {
    const Library json = written_json(finished());
    CHECK(json.at("assignment") == "ring-all-reduce");
    CHECK(json.at("lockstep") == "0.1.0");
    CHECK(json.at("finished") == true);
    CHECK(json.at("built") == true);
    CHECK(json.at("build_failure").is_null());
    CHECK(json.at("seconds") == 12.346);
    CHECK(json.at("remarks").size() == 1);
    const Library& failed = json.at("criteria").at(1);
    CHECK(failed.at("mark") == "failed");
    CHECK(failed.at("earned") == 0);
    CHECK(failed.at("points") == 3);
    CHECK(failed.at("lesson") == "gradient-accumulation");
    CHECK(failed.at("lesson_step") == 6);
    CHECK(json.at("drawn") == "1234");
    CHECK(json.at("criteria").at(0).at("said").is_null());
    CHECK(json.at("criteria").at(2).at("mark") == "not_written");
    CHECK(written_json(sample_grade()).at("criteria").at(0).at("mark") == "not_judged");
}

TEST_CASE("A program that cannot be built has no points, even of a criterion that passed",
          "[grader]") {
    GradeReport report = sample_of_failed_build();
    report.criteria[0].mark = Mark::passed;
    const Library json = written_json(report);
    CHECK(json.at("earned") == 0);
    CHECK(json.at("built") == false);
    CHECK(json.at("build_failure").at("file") == "ring.cpp");
    CHECK(json.at("build_failure").at("line") == 12);
    const Library gradescope = written_json(report, GradeFormat::gradescope);
    CHECK(gradescope.at("score") == 0);
    CHECK(contains(gradescope.at("output"), "ring.cpp:12: expected ';' before '}'"));
    const Library prairielearn = written_json(report, GradeFormat::prairielearn);
    CHECK(prairielearn.at("format_errors").at(0) ==
          "ring.cpp:12: expected ';' before '}' token");
    CHECK_FALSE(prairielearn.contains("score"));
    const std::string text = written(report, GradeFormat::text);
    CHECK(contains(text, "earns none of the 13 points"));
    CHECK(contains(text,
                   "    ring.cpp:12: expected ';' before '}' token\n"
                   "       12 |     return sum\n"));
    CHECK(contains(text, "0 of 13 points"));
}

TEST_CASE("Gradescope counts only passed criteria as passed", "[grader]") {
    GradeReport report = sample_grade({Mark::passed, Mark::failed, Mark::not_written});
    for (CriterionReport& one : report.criteria)
        one.points = 0;
    const Library tests = written_json(report, GradeFormat::gradescope).at("tests");
    CHECK(tests.at(0).at("status") == "passed");
    for (std::size_t i = 1; i < 4; ++i)
        CHECK(tests.at(i).at("status") == "failed");
}

TEST_CASE("JUnit counts failures, errors and skipped tests", "[grader]") {
    const std::string half =
        written(sample_grade({Mark::passed, Mark::failed}), GradeFormat::junit);
    CHECK(is_balanced_xml(half.substr(half.find("?>") + 2)));
    CHECK(contains(half, "tests=\"5\" failures=\"1\" errors=\"1\" skipped=\"2\""));
    CHECK(count(half, "<skipped ") == 2);
    const std::string done = written(finished(), GradeFormat::junit);
    CHECK(contains(done, "tests=\"4\" failures=\"2\" errors=\"0\" skipped=\"0\""));
    CHECK(count(done, "<failure ") == 2);
    CHECK(contains(done, "time=\"12.346\""));
    CHECK(contains(done, "type=\"not-written\""));
    const std::string broken = written(sample_of_failed_build(), GradeFormat::junit);
    CHECK(contains(broken, "tests=\"5\" failures=\"0\" errors=\"1\" skipped=\"4\""));
}

TEST_CASE("JUnit is not green before grading has finished", "[grader]") {
    GradeReport report = sample_grade();
    CHECK(contains(written(report, GradeFormat::junit), "errors=\"1\""));
    report.finished = true;
    CHECK(contains(written(report, GradeFormat::junit), "errors=\"0\""));
}

TEST_CASE("The text names the mistake and the lesson that teaches it", "[grader]") {
    const std::string text = written(finished(), GradeFormat::text);
    CHECK(contains(text,
                   "A ring all-reduce\n─────────────────\n\n"
                   "passed       4 of 4  a1.1: reduce_scatter leaves each rank the sum"
                   " of its chunk\n"
                   "failed       0 of 3  a1.2-bytes: all_gather sends what it must, and"
                   " no more\n"
                   "    asked     672 to 672 bytes a rank\n"
                   "    measured  1344 bytes on rank 2\n"
                   "    Deadlock: 2 of 4 ranks wait for one another\n"
                   "      rank 1  recv(from 0)   all_gather, ring.cpp:41\n"
                   "      rank 2  recv(from 1)   all_gather, ring.cpp:41\n"
                   "    taught in lockstep lesson gradient-accumulation --step 6\n"
                   "not written  0 of 1  "));
    CHECK(contains(text,
                   "\n9 of 13 points, in 12.3 seconds\n"
                   "First: write all_gather in ring.cpp (a1.2-bytes)\n"
                   "Sizes and values are random and differ each time; --drawn 1234 "
                   "repeats these.\n"));
    CHECK(contains(text, "Note: This machine has 2 cores"));
    CHECK_FALSE(contains(text, "not finished"));
    CHECK(contains(written(sample_grade({Mark::passed}), GradeFormat::text),
                   "Grading has not finished: 1 of 4 criteria are judged."));
}

TEST_CASE("The text keeps to its width and has colour only on request", "[grader]") {
    for (const auto& [name, report] : sample_grades())
        for (const int width : {1, 20, 37, 52, 80, 200}) {
            CAPTURE(name, width);
            const std::string text =
                grade_text_of(report, GradeFormat::text, width, false);
            for (const std::string& line : split_lines(text))
                REQUIRE(columns_of(line) <= std::max(width, 20));
        }
    const std::string colour = grade_text_of(finished(), GradeFormat::text, 80, true);
    CHECK(contains(colour, "\x1b[32mpassed\x1b[0m       4 of 4"));
    CHECK(contains(colour, "\x1b[1;31mfailed\x1b[0m"));
    CHECK_FALSE(contains(written(finished(), GradeFormat::text), "\x1b"));
}

TEST_CASE("A lesson's step becomes the command that shows it", "[grader]") {
    CHECK(lesson_command("gradient-accumulation, step 6") ==
          "lockstep lesson gradient-accumulation --step 6");
    CHECK(lesson_command("column-linear") == "lockstep lesson column-linear");
    CHECK(lesson_command("").empty());
    CHECK(lesson_command("a, step 6b") == "lockstep lesson a, step 6b");
    CHECK(lesson_command("a, step 0") == "lockstep lesson a, step 0");
}

TEST_CASE("A grade's file replaces another one as a whole", "[grader]") {
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / "results" / "results.json";
    write_grade(sample_grade(), GradeFormat::gradescope, path);
    write_grade(finished(), GradeFormat::gradescope, path);
    CHECK(read_text_file(path, 1 << 20) == written(finished(), GradeFormat::gradescope));
    std::set<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(path.parent_path()))
        files.insert(entry.path().filename().string());
    CHECK(files == std::set<std::string>{"results.json"});
    CHECK_THROWS_AS(write_grade(finished(), GradeFormat::json, path / "below.json"),
                    std::system_error);
}

TEST_CASE("A grade that is read while a new one is written stays whole", "[grader]") {
    // The old file keeps its contents, because the new grade is a new file.
    const TemporaryFolder folder;
    const std::filesystem::path path = folder / "grade.json";
    write_grade(sample_grade(), GradeFormat::json, path);
    std::ifstream reader(path);
    write_grade(finished(), GradeFormat::json, path);
    const std::string old{std::istreambuf_iterator<char>(reader), {}};
    CHECK(old == written(sample_grade(), GradeFormat::json));
}

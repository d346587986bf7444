#include "tests/grader/sample_grades.hpp"

#include <cmath>
#include <limits>

#include <fmt/format.h>

namespace lockstep::test {

using lessons::BuildFailure;
using lessons::CriterionReport;
using lessons::GradeReport;
using lessons::Mark;

namespace {

constexpr std::size_t kMegabytes = 1 << 20;

std::string repeated(const std::string& text, std::size_t bytes) {
    std::string all;
    while (all.size() < bytes)
        all += text;
    return all;
}

CriterionReport judged(CriterionReport criterion, Mark mark) {
    criterion.mark = mark;
    if (mark == Mark::failed) {
        criterion.measured = "1344 bytes on rank 2";
        criterion.said =
            "Deadlock: 2 of 4 ranks wait for one another\n"
            "  rank 1  recv(from 0)   all_gather, ring.cpp:41\n"
            "  rank 2  recv(from 1)   all_gather, ring.cpp:41";
    } else if (mark == Mark::not_written) {
        criterion.said = "all_gather in ring.cpp is not written yet.";
    } else {
        criterion.measured = "672 bytes";
    }
    return criterion;
}

}  // namespace

GradeReport sample_grade() {
    GradeReport report;
    report.slug = "ring-all-reduce";
    report.title = "A ring all-reduce";
    report.version = "0.1.0";
    const auto add = [&](const char* id, const char* title, int points) {
        CriterionReport criterion;
        criterion.id = id;
        criterion.title = title;
        criterion.lesson = "gradient-accumulation, step 6";
        criterion.points = points;
        criterion.asked = "672 to 672 bytes a rank";
        report.criteria.push_back(criterion);
    };
    add("a1.1", "reduce_scatter leaves each rank the sum of its chunk", 4);
    add("a1.2-bytes", "all_gather sends what it must, and no more", 3);
    add("a1.3", "Ranks that hold nothing take part", 1);
    add("a1.4", "Any number of ranks comes to the same bits", 5);
    return report;
}

GradeReport sample_grade(const std::vector<Mark>& marks) {
    GradeReport report = sample_grade();
    for (std::size_t i = 0; i < marks.size(); ++i)
        report.criteria[i] = judged(report.criteria[i], marks[i]);
    report.seconds = 12.3456;
    report.drawn = 1234;
    report.first = "write all_gather in ring.cpp (a1.2-bytes)";
    report.finished = marks.size() == report.criteria.size();
    if (report.finished)
        report.remarks = {"This machine has 2 cores, and 8 ranks took turns on them."};
    return report;
}

GradeReport sample_of_failed_build() {
    GradeReport report = sample_grade();
    report.build_failure = BuildFailure{.file = "ring.cpp",
                                        .line = 12,
                                        .message = "expected ';' before '}' token",
                                        .lines =
                                            "   12 |     return sum\n"
                                            "      |               ^\n"
                                            "      |               ;"};
    report.first = "mend ring.cpp:12";
    report.seconds = 3;
    report.finished = true;
    return report;
}

std::string hostile_text() {
    std::string text = "</failure>]]><!--&amp;\"'\\ {} %s\r\n\ttab\r";
    for (int byte = 0; byte < 256; ++byte)
        text += static_cast<char>(byte);
    text += "\x1b[2J\x1b]0;owned\x07";
    text += "\xc0\xaf\xed\xa0\x80\xf4\x90\x80\x80\xf0\x9f";  // invalid UTF-8
    text +=
        "\xe2\x80\xae"
        "drawkcab\xef\xbf\xbe\xef\xbf\xbf\xc2\x9b"
        "31m";
    text += "\xe5\xad\xa6\xf0\x9f\x98\x80 e\xcc\x81 end";  // and valid characters
    return text;
}

GradeReport hostile_grade() {
    const std::string text = hostile_text();
    GradeReport report = sample_grade({Mark::failed, Mark::not_written, Mark::passed});
    report.slug = report.title = report.version = report.first = text;
    report.remarks = {text, text};
    for (CriterionReport& one : report.criteria) {
        one.id += text;
        one.title = one.lesson = one.asked = one.measured = one.said = text;
    }
    report.seconds = std::numeric_limits<double>::quiet_NaN();
    return report;
}

GradeReport longest_grade() {
    const std::string text = repeated(repeated("\"\\<", 60) + "\n", 10 * kMegabytes);
    GradeReport report = hostile_grade();
    report.title = report.first = text;
    report.criteria.clear();
    for (int i = 0; i < 100; ++i) {
        const std::string said = i == 0 ? text : text.substr(0, 10'000);
        report.criteria.push_back({.id = fmt::format("a{}", i),
                                   .title = said,
                                   .lesson = said,
                                   .points = 1,
                                   .mark = Mark::failed,
                                   .asked = said,
                                   .measured = said,
                                   .said = said});
    }
    report.remarks.assign(1000, text.substr(0, 1000));
    report.seconds = std::numeric_limits<double>::infinity();
    return report;
}

std::vector<std::pair<std::string, GradeReport>> sample_grades() {
    GradeReport hostile_build = hostile_grade();
    hostile_build.build_failure =
        BuildFailure{.file = hostile_text(),
                     .line = -1,
                     .message = hostile_text(),
                     .lines = repeated(hostile_text(), kMegabytes)};
    GradeReport no_points = sample_grade({Mark::passed, Mark::failed});
    for (CriterionReport& one : no_points.criteria)
        one.points = 0;
    GradeReport no_criteria = sample_grade();
    no_criteria.criteria.clear();
    using enum Mark;
    GradeReport stopped = sample_grade({passed, failed});
    stopped.stopped = "cannot make a process: Resource temporarily unavailable";
    return {{"nothing-judged", sample_grade()},
            {"half", sample_grade({passed, failed})},
            {"finished", sample_grade({passed, failed, not_written, passed})},
            {"all-passed", sample_grade({passed, passed, passed, passed})},
            {"stopped", stopped},
            {"left-out", sample_grade({passed, not_judged, passed, passed})},
            {"failed-build", sample_of_failed_build()},
            {"no-criteria", no_criteria},
            {"no-points", no_points},
            {"hostile", hostile_grade()},
            {"hostile-build", hostile_build},
            {"longest", longest_grade()}};
}

}  // namespace lockstep::test

#include "lessons/grader/report/grade_report.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lessons/grader/report/clean_text.hpp"

namespace lockstep::lessons {

int GradeReport::points() const {
    int sum = 0;
    for (const CriterionReport& criterion : criteria)
        sum += criterion.points;
    return sum;
}

int GradeReport::earned() const {
    int sum = 0;
    for (const CriterionReport& criterion : criteria)
        sum += criterion.earned();
    return sum;
}

namespace {

constexpr std::size_t kLineBytes = 400;
constexpr std::size_t kMostRemarks = 20;
constexpr std::size_t kMostLines = 200;
constexpr std::size_t kSaidBytes = 16 << 10;
constexpr std::size_t kSaidBytesOfAll = 192 << 10;
constexpr double kMostSeconds = 1e9;

std::string line(const std::string& text) {
    return clean_line(text, kLineBytes);
}

CriterionReport shown(const CriterionReport& criterion, std::size_t said_bytes) {
    return {.id = line(criterion.id),
            .title = line(criterion.title),
            .lesson = line(criterion.lesson),
            .points = criterion.points,
            .mark = criterion.mark,
            .asked = line(criterion.asked),
            .measured = line(criterion.measured),
            .said = clean_lines(criterion.said, {said_bytes, kMostLines})};
}

std::vector<std::string> shown(const std::vector<std::string>& remarks) {
    std::vector<std::string> lines;
    for (const std::string& remark : remarks) {
        if (lines.size() == kMostRemarks) {
            lines.push_back(fmt::format("… and {} more", remarks.size() - kMostRemarks));
            break;
        }
        lines.push_back(line(remark));
    }
    return lines;
}

}  // namespace

GradeReport shown_report(const GradeReport& report) {
    GradeReport shown_one;
    shown_one.slug = line(report.slug);
    shown_one.title = line(report.title);
    shown_one.version = line(report.version);
    const std::size_t count = std::max<std::size_t>(report.criteria.size(), 1);
    const std::size_t said_bytes = std::min(kSaidBytes, kSaidBytesOfAll / count);
    for (const CriterionReport& criterion : report.criteria) {
        shown_one.criteria.push_back(shown(criterion, said_bytes));
        if (report.build_failure) shown_one.criteria.back().mark = Mark::not_judged;
    }
    if (const auto& failure = report.build_failure)
        shown_one.build_failure =
            BuildFailure{.file = line(failure->file),
                         .line = failure->line,
                         .message = line(failure->message),
                         .lines = clean_lines(failure->lines, {kSaidBytes, kMostLines})};
    shown_one.first = line(report.first);
    shown_one.remarks = shown(report.remarks);
    if (std::isfinite(report.seconds))
        shown_one.seconds = std::clamp(report.seconds, 0.0, kMostSeconds);
    shown_one.finished = report.finished;
    return shown_one;
}

}  // namespace lockstep::lessons

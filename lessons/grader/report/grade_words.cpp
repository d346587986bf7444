#include "lessons/grader/report/grade_words.hpp"

#include <algorithm>
#include <charconv>

#include <fmt/format.h>

namespace lockstep::lessons {

namespace {

void add_line(std::string& lines, const std::string& label, const std::string& text) {
    if (text.empty()) return;
    if (!lines.empty()) lines += '\n';
    lines += label + text;
}

}  // namespace

std::string mark_text(Mark mark) {
    switch (mark) {
        case Mark::not_judged:
            return "not judged";
        case Mark::not_written:
            return "not written";
        case Mark::failed:
            return "failed";
        case Mark::passed:
            return "passed";
    }
    return "not judged";
}

LessonStep read_lesson_step(const std::string& text) {
    const std::string before = ", step ";
    const std::size_t at = text.rfind(before);
    if (at == std::string::npos) return {text, {}};
    int step = 0;
    const char* const begin = text.data() + at + before.size();
    const char* const end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(begin, end, step);
    if (error != std::errc() || stopped != end || step < 1) return {text, {}};
    return {text.substr(0, at), step};
}

std::string lesson_command(const std::string& text) {
    if (text.empty()) return {};
    const LessonStep place = read_lesson_step(text);
    const std::string command = "lockstep lesson " + place.lesson;
    return place.step ? fmt::format("{} --step {}", command, *place.step) : command;
}

std::string name_text(const CriterionReport& criterion) {
    return criterion.id + ": " + criterion.title;
}

std::string build_error_text(const BuildFailure& failure) {
    if (failure.file.empty()) return failure.message;
    if (failure.line <= 0) return failure.file + ": " + failure.message;
    return fmt::format("{}:{}: {}", failure.file, failure.line, failure.message);
}

std::string not_built_text(const GradeReport& report) {
    return fmt::format(
        "The program could not be built, and so earns none of the {}.",
        report.points() == 1 ? "1 point" : fmt::format("{} points", report.points()));
}

std::string not_finished_text(const GradeReport& report) {
    const auto judged = std::ranges::count_if(
        report.criteria, [](const auto& one) { return one.mark != Mark::not_judged; });
    return fmt::format("Grading has not finished: {} of {} criteria are judged.", judged,
                       report.criteria.size());
}

std::string points_text(int earned, int points) {
    return fmt::format("{} of {} {}", earned, points, points == 1 ? "point" : "points");
}

std::string details_text(const CriterionReport& criterion) {
    std::string lines;
    add_line(lines, "asked: ", criterion.asked);
    add_line(lines, "measured: ", criterion.measured);
    add_line(lines, "", criterion.said);
    add_line(lines, "taught in: ", lesson_command(criterion.lesson));
    return lines;
}

std::string whole_text(const GradeReport& report) {
    std::string lines;
    if (report.build_failure) {
        add_line(lines, "", not_built_text(report));
        add_line(lines, "", build_error_text(*report.build_failure));
        add_line(lines, "", report.build_failure->lines);
    }
    if (!report.finished && !report.build_failure)
        add_line(lines, "", not_finished_text(report));
    add_line(lines, "First: ", report.first);
    for (const std::string& remark : report.remarks)
        add_line(lines, "Note: ", remark);
    return lines;
}

}  // namespace lockstep::lessons

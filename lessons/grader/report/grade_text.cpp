#include <algorithm>
#include <cstdint>
#include <tuple>

#include <fmt/format.h>

#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/grader/report/grade_words.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kNarrowest = 20;
constexpr int kWidestText = 100;  // longer lines are hard to read
constexpr int kMarkColumns = 11;  // "not written"
constexpr int kIndent = 4;
constexpr std::size_t kLongSaid = 200;  // longer is said once

enum class Look : std::uint8_t { plain, strong, faint, good, bad };

Look look_of(Mark mark) {
    switch (mark) {
        case Mark::passed:
            return Look::good;
        case Mark::failed:
            return Look::bad;
        case Mark::not_written:
            return Look::strong;
        case Mark::not_judged:
            return Look::faint;
    }
    return Look::plain;
}

class GradePage {
  public:
    GradePage(const GradeReport& report, int width, bool colour)
        : report_(report), width_(std::max(width, kNarrowest)), colour_(colour) {
        heading();
        if (report.build_failure)
            build_failure(*report.build_failure);
        else
            criteria();
        for (const std::string& remark : report.remarks)
            paragraph("Note: " + remark, 0);
        total();
        if (!report.first.empty()) paragraph("First: " + report.first, 0, Look::strong);
    }

    const std::string& text() const { return text_; }

  private:
    void line(const std::string& text, Look look = Look::plain) {
        text_ += dressed(text, look) + "\n";
    }

    std::string dressed(const std::string& text, Look look) const {
        if (!colour_ || look == Look::plain || text.empty()) return text;
        const char* code = look == Look::strong  ? "1"
                           : look == Look::faint ? "2"
                           : look == Look::good  ? "32"
                                                 : "1;31";
        return fmt::format("\x1b[{}m{}\x1b[0m", code, text);
    }

    int text_width() const { return std::min(width_, kWidestText); }

    void paragraph(const std::string& text, int indent, Look look = Look::plain) {
        for (const std::string& part : wrap(text, text_width() - indent))
            line(pad_right("", indent) + part, look);
    }

    /// Lines stay as they are where they fit.
    void verbatim(const std::string& lines, int indent) {
        for (const std::string& one : split_lines(lines))
            for (const std::string& part : fold(one, width_ - indent))
                line(part.empty() ? part : pad_right("", indent) + part);
    }

    /// A word, and text that hangs beside it.
    void labelled(const std::string& label, const std::string& text) {
        if (text.empty()) return;
        const int hang = kIndent + 10;
        bool first = true;
        for (const std::string& part : wrap(text, text_width() - hang)) {
            line(pad_right(pad_right("", kIndent) + (first ? label : ""), hang) + part);
            first = false;
        }
    }

    void heading() {
        int widest = 0;
        for (const std::string& part : wrap(report_.title, text_width())) {
            line(part, Look::strong);
            widest = std::max(widest, columns_of(part));
        }
        std::string rule;
        for (int i = 0; i < widest; ++i)
            rule += "─";
        line(rule, Look::strong);
        line("");
    }

    void build_failure(const BuildFailure& failure) {
        paragraph(not_built_text(report_), 0, Look::bad);
        paragraph(build_error_text(failure), kIndent);
        verbatim(failure.lines, kIndent);
        line("");
    }

    void criteria() {
        for (const CriterionReport& criterion : report_.criteria)
            show(criterion);
        if (!report_.criteria.empty()) line("");
    }

    /// Mark, points and title in columns, or below each other where those are narrow.
    void show(const CriterionReport& criterion) {
        const std::string points =
            pad_left(fmt::format("{} of {}", criterion.earned(), criterion.points),
                     points_columns());
        const std::string mark = mark_text(criterion.mark);
        const int hang = kMarkColumns + 2 + columns_of(points) + 2;
        const Look look = look_of(criterion.mark);
        if (text_width() - hang < kNarrowest) {
            line(mark, look);
            paragraph(points + ", " + name_text(criterion), 2);
        } else {
            const auto parts = wrap(name_text(criterion), text_width() - hang);
            for (std::size_t i = 0; i < parts.size(); ++i)
                line((i > 0 ? pad_right("", hang)
                            : dressed(mark, look) +
                                  pad_right("", kMarkColumns - columns_of(mark)) + "  " +
                                  points + "  ") +
                     parts[i]);
        }
        const bool not_reached =
            criterion.mark == Mark::not_judged && criterion.said.empty();
        if (criterion.mark != Mark::passed && !not_reached) explain(criterion);
    }

    void explain(const CriterionReport& criterion) {
        const std::string before = first_like(criterion);
        if (criterion.mark == Mark::failed && before != criterion.id) {
            paragraph("the same as in " + before, kIndent);
        } else {
            labelled("asked", criterion.asked);
            labelled("measured", criterion.measured);
            show_said(criterion);
        }
        labelled("taught in", lesson_command(criterion.lesson));
    }

    void show_said(const CriterionReport& criterion) {
        const std::string before = first_that_said(criterion.said);
        if (criterion.said.size() > kLongSaid && before != criterion.id)
            paragraph("the same as in " + before, kIndent);
        else if (criterion.said.find('\n') == std::string::npos)
            paragraph(criterion.said, kIndent);
        else
            verbatim(criterion.said, kIndent);
    }

    /// The first that was asked the same, of which the same is known.
    std::string first_like(const CriterionReport& criterion) const {
        const auto known = [](const CriterionReport& each) {
            return std::tie(each.mark, each.asked, each.measured, each.said);
        };
        for (const CriterionReport& each : report_.criteria)
            if (known(each) == known(criterion)) return each.id;
        return criterion.id;
    }

    std::string first_that_said(const std::string& said) const {
        for (const CriterionReport& criterion : report_.criteria)
            if (criterion.said == said) return criterion.id;
        return "";
    }

    int points_columns() const {
        int most = 0;
        for (const CriterionReport& criterion : report_.criteria)
            most = std::max(most, columns_of(fmt::format("{} of {}", criterion.earned(),
                                                         criterion.points)));
        return most;
    }

    void total() {
        if (!report_.finished && !report_.build_failure)
            paragraph(not_finished_text(report_), 0, Look::bad);
        const bool all = report_.finished && report_.earned() == report_.points();
        paragraph(
            fmt::format("{}, in {:.1f} seconds",
                        points_text(report_.earned(), report_.points()), report_.seconds),
            0, all ? Look::good : Look::strong);
    }

    const GradeReport& report_;
    int width_;
    bool colour_;
    std::string text_;
};

}  // namespace

std::string grade_as_text(const GradeReport& report, int width, bool colour) {
    return GradePage(report, width, colour).text();
}

}  // namespace lockstep::lessons

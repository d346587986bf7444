#include "lessons/grader/report/grade_formats.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>
#include <tuple>

#include <fmt/format.h>

#include "lessons/grader/report/grade_report.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace {

void add_line(std::string& lines, const std::string& label, const std::string& text) {
    if (text.empty()) return;
    if (!lines.empty()) lines += '\n';
    lines += label + text;
}

/// Returns "not judged", "not written", "failed" or "passed".
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

/// The lesson and the step that teach something.
struct LessonStep {
    std::string lesson;
    std::optional<int> step;
};

/// Reads "gradient-accumulation, step 6". A text without ", step N" is a lesson's name.
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

/// Returns "a1.2-bytes: all_gather sends what it must, and no more".
std::string name_text(const CriterionReport& criterion) {
    return criterion.id + ": " + criterion.title;
}

/// Returns "ring.cpp:12: expected ';' before '}' token", without the line, or without
/// file and line, if they are unknown.
std::string build_error_text(const BuildFailure& failure) {
    if (failure.file.empty()) return failure.message;
    if (failure.line <= 0) return failure.file + ": " + failure.message;
    return fmt::format("{}:{}: {}", failure.file, failure.line, failure.message);
}

/// Returns "The program could not be built, and so earns none of the 13 points."
std::string not_built_text(const GradeReport& report) {
    return fmt::format(
        "The program could not be built, and so earns none of the {}.",
        report.points() == 1 ? "1 point" : fmt::format("{} points", report.points()));
}

/// Returns "Grading has not finished: 3 of 7 criteria are judged."
std::string not_finished_text(const GradeReport& report) {
    if (!report.stopped.empty())
        return fmt::format("This is not a grade. The machine stopped the grading: {}.",
                           report.stopped);
    const auto judged = std::ranges::count_if(
        report.criteria, [](const auto& one) { return one.mark != Mark::not_judged; });
    return fmt::format("Grading has not finished: {} of {} criteria are judged.", judged,
                       report.criteria.size());
}

/// Returns "4 of 13 points" or "1 of 1 point".
std::string points_text(int earned, int points) {
    return fmt::format("{} of {} {}", earned, points, points == 1 ? "point" : "points");
}

/// Returns what was asked, measured and said, and the lesson's command, each on its own
/// lines; empty if there is none of these.
std::string details_text(const CriterionReport& criterion) {
    std::string lines;
    add_line(lines, "asked: ", criterion.asked);
    add_line(lines, "measured: ", criterion.measured);
    add_line(lines, "", criterion.said);
    add_line(lines, "taught in: ", lesson_command(criterion.lesson));
    return lines;
}

/// Returns the report's lines about the work as a whole: the failed build with the
/// compiler's output; the unfinished grading; what to do first; the remarks. Empty if the
/// report has none of these.
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

constexpr int kNarrowest = 20;
constexpr int kWidestText = 100;  // longer lines are hard to read
constexpr int kMarkColumns = 11;  // "not written"
constexpr int kIndent = 4;
constexpr std::size_t kLongSaid = 200;  // repeats of a longer text are not shown

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
        if (report.finished && !report.build_failure)
            paragraph(fmt::format("Sizes and values are random and differ each time; "
                                  "--drawn {} repeats these.",
                                  report.drawn),
                      0, Look::faint);
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

    /// Prints lines unchanged if they fit.
    void verbatim(const std::string& lines, int indent) {
        for (const std::string& one : split_lines(lines))
            for (const std::string& part : fold(one, width_ - indent))
                line(part.empty() ? part : pad_right("", indent) + part);
    }

    /// Prints a label, and the text next to it with a hanging indent.
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

    /// Prints mark, points and title in columns, or below each other if the columns are
    /// too narrow.
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

    /// Returns the id of the first criterion with the same mark and the same texts.
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
        if (!report_.stopped.empty()) return;
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

namespace {

Json text_or_null(const std::string& text) {
    return text.empty() ? Json() : Json(text);
}

std::string mark_word(Mark mark) {
    std::string word = mark_text(mark);
    std::replace(word.begin(), word.end(), ' ', '_');
    return word;
}

Json criterion_json(const CriterionReport& criterion) {
    const LessonStep place = read_lesson_step(criterion.lesson);
    return {{"id", criterion.id},
            {"title", criterion.title},
            {"mark", mark_word(criterion.mark)},
            {"earned", criterion.earned()},
            {"points", criterion.points},
            {"asked", text_or_null(criterion.asked)},
            {"measured", text_or_null(criterion.measured)},
            {"said", text_or_null(criterion.said)},
            {"lesson", text_or_null(place.lesson)},
            {"lesson_step", place.step ? Json(*place.step) : Json()}};
}

Json build_failure_json(const BuildFailure& failure) {
    return {{"file", text_or_null(failure.file)},
            {"line", failure.line > 0 ? Json(failure.line) : Json()},
            {"message", failure.message},
            {"lines", text_or_null(failure.lines)}};
}

/// Returns {"seccomp": true, ...}.
Json confinement_json(const std::vector<ConfinementLayer>& layers) {
    Json json = Json::object();
    for (const ConfinementLayer& layer : layers)
        json[layer.name] = layer.is_on;
    return json;
}

}  // namespace

std::string grade_as_json(const GradeReport& report) {
    Json criteria = Json::array();
    for (const CriterionReport& criterion : report.criteria)
        criteria.push_back(criterion_json(criterion));
    const auto& failure = report.build_failure;
    const Json document{
        {"assignment", report.slug},
        {"title", report.title},
        {"lockstep", report.version},
        {"finished", report.finished},
        {"stopped", text_or_null(report.stopped)},
        {"built", !failure},
        {"build_failure", failure ? build_failure_json(*failure) : Json()},
        {"earned", report.earned()},
        {"points", report.points()},
        {"seconds", std::round(report.seconds * 1000) / 1000},
        {"criteria", std::move(criteria)},
        {"first", text_or_null(report.first)},
        {"drawn", fmt::format("{}", report.drawn)},
        {"remarks", Json(report.remarks)},
        {"confinement", confinement_json(report.confinement)}};
    return document.dump(2) + "\n";
}

namespace {

Json gradescope_test(const CriterionReport& criterion, std::size_t number) {
    std::string output = mark_text(criterion.mark);
    const std::string details = details_text(criterion);
    if (!details.empty()) output += "\n" + details;
    // Without a status, a test with no points would count as passed.
    return {{"score", criterion.earned()},
            {"max_score", criterion.points},
            {"status", criterion.mark == Mark::passed ? "passed" : "failed"},
            {"name", name_text(criterion)},
            {"name_format", "text"},
            {"number", std::to_string(number)},
            {"output", output},
            {"output_format", "text"},
            {"visibility", "visible"}};
}

}  // namespace

std::string grade_as_gradescope(const GradeReport& report) {
    Json tests = Json::array();
    for (const CriterionReport& criterion : report.criteria)
        tests.push_back(gradescope_test(criterion, tests.size() + 1));
    Json document{{"execution_time", static_cast<int>(std::ceil(report.seconds))},
                  {"output", whole_text(report)},
                  {"output_format", "text"},
                  {"visibility", "visible"},
                  {"extra_data",
                   {{"assignment", report.slug},
                    {"lockstep", report.version},
                    {"finished", report.finished},
                    {"built", !report.build_failure}}}};
    if (report.stopped.empty()) {
        document["score"] = report.earned();
        document["tests"] = std::move(tests);
    }
    return document.dump(2) + "\n";
}

namespace {

Json not_gradable(const GradeReport& report) {
    const std::string why = report.build_failure ? build_error_text(*report.build_failure)
                                                 : not_finished_text(report);
    return {
        {"gradable", false}, {"format_errors", {why}}, {"message", whole_text(report)}};
}

Json prairielearn_test(const CriterionReport& criterion) {
    Json test{{"name", name_text(criterion)},
              {"points", criterion.earned()},
              {"max_points", criterion.points}};
    if (!criterion.asked.empty()) test["description"] = "Asked: " + criterion.asked;
    std::string message = mark_text(criterion.mark);
    if (!criterion.measured.empty()) message += "\nmeasured: " + criterion.measured;
    const std::string command = lesson_command(criterion.lesson);
    if (!command.empty()) message += "\ntaught in: " + command;
    test["message"] = message;
    if (!criterion.said.empty()) test["output"] = criterion.said;
    return test;
}

}  // namespace

std::string grade_as_prairielearn(const GradeReport& report) {
    if (report.build_failure || !report.stopped.empty())
        return not_gradable(report).dump(2) + "\n";
    Json tests = Json::array();
    for (const CriterionReport& criterion : report.criteria)
        tests.push_back(prairielearn_test(criterion));
    const double score =
        report.points() > 0 ? static_cast<double>(report.earned()) / report.points() : 0;
    Json document{{"gradable", true}, {"score", score}};
    document["message"] = points_text(report.earned(), report.points());
    const std::string whole = whole_text(report);
    if (!whole.empty()) document["output"] = whole;
    document["tests"] = std::move(tests);
    return document.dump(2) + "\n";
}

namespace {

/// Escapes text for use between tags and in attributes in double quotes.
std::string escaped(const std::string& text) {
    std::string xml;
    for (const char c : text) {
        switch (c) {
            case '&':
                xml += "&amp;";
                break;
            case '<':
                xml += "&lt;";
                break;
            case '>':
                xml += "&gt;";
                break;
            case '"':
                xml += "&quot;";
                break;
            default:
                xml += c;
        }
    }
    return xml;
}

struct Counts {
    std::size_t tests = 0;
    std::size_t failures = 0;
    std::size_t errors = 0;
    std::size_t skipped = 0;
};

class JUnitSuite {
  public:
    explicit JUnitSuite(const GradeReport& report) : report_(report) {
        if (report.build_failure)
            add_error("build", "not-built", build_error_text(*report.build_failure),
                      report.build_failure->lines);
        else if (!report.finished)
            add_error("grading", "not-finished", not_finished_text(report), "");
        for (const CriterionReport& criterion : report.criteria)
            add(criterion);
    }

    std::string text() const {
        const std::string time = fmt::format("{:.3f}", report_.seconds);
        std::string xml = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
        xml += fmt::format(
            "<testsuites name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
            "time=\"{}\">\n",
            escaped(report_.title), counts_.tests, counts_.failures, counts_.errors,
            time);
        xml += fmt::format(
            "  <testsuite name=\"{}\" tests=\"{}\" failures=\"{}\" errors=\"{}\" "
            "skipped=\"{}\" time=\"{}\">\n",
            escaped(report_.slug), counts_.tests, counts_.failures, counts_.errors,
            counts_.skipped, time);
        xml += properties() + cases_;
        const std::string whole = whole_text(report_);
        if (!whole.empty())
            xml += "    <system-out>" + escaped(whole) + "</system-out>\n";
        return xml + "  </testsuite>\n</testsuites>\n";
    }

  private:
    void open_case(const std::string& name) {
        cases_ += fmt::format("    <testcase classname=\"{}\" name=\"{}\">\n",
                              escaped(report_.slug), escaped(name));
        ++counts_.tests;
    }

    void add_part(const char* tag, const std::string& type, const std::string& message,
                  const std::string& text) {
        cases_ += fmt::format("      <{0} type=\"{1}\" message=\"{2}\">{3}</{0}>\n", tag,
                              type, escaped(message), escaped(text));
    }

    void add_error(const std::string& name, const std::string& type,
                   const std::string& message, const std::string& text) {
        open_case(name);
        add_part("error", type, message, text);
        cases_ += "    </testcase>\n";
        ++counts_.errors;
    }

    void add(const CriterionReport& criterion) {
        open_case(name_text(criterion));
        const std::string details = details_text(criterion);
        if (criterion.mark == Mark::not_judged) {
            add_part("skipped", "not-judged", mark_text(criterion.mark), details);
            ++counts_.skipped;
        } else if (criterion.mark != Mark::passed) {
            const bool written = criterion.mark == Mark::failed;
            add_part("failure", written ? "failed" : "not-written", reason(criterion),
                     details);
            ++counts_.failures;
        }
        cases_ += fmt::format("      <system-out>{}</system-out>\n    </testcase>\n",
                              points_text(criterion.earned(), criterion.points));
    }

    /// Returns one line, which readers of JUnit XML show without a click.
    static std::string reason(const CriterionReport& criterion) {
        if (criterion.measured.empty())
            return criterion.said.empty()
                       ? mark_text(criterion.mark)
                       : criterion.said.substr(0, criterion.said.find('\n'));
        return fmt::format("asked: {}; measured: {}", criterion.asked,
                           criterion.measured);
    }

    std::string properties() const {
        const auto property = [](const char* name, const std::string& value) {
            return fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", name,
                               escaped(value));
        };
        return "    <properties>\n" + property("lockstep", report_.version) +
               property("earned", std::to_string(report_.earned())) +
               property("points", std::to_string(report_.points())) +
               "    </properties>\n";
    }

    const GradeReport& report_;
    std::string cases_;
    Counts counts_;
};

}  // namespace

std::string grade_as_junit(const GradeReport& report) {
    return JUnitSuite(report).text();
}

namespace {

constexpr int kFileColumns = 80;

}  // namespace

std::string grade_text_of(const GradeReport& report, GradeFormat format, int width,
                          bool colour) {
    const GradeReport shown = shown_report(report);
    switch (format) {
        case GradeFormat::text:
            return grade_as_text(shown, width, colour);
        case GradeFormat::json:
            return grade_as_json(shown);
        case GradeFormat::gradescope:
            return grade_as_gradescope(shown);
        case GradeFormat::prairielearn:
            return grade_as_prairielearn(shown);
        case GradeFormat::junit:
            return grade_as_junit(shown);
    }
    return {};
}

void write_grade(const GradeReport& report, GradeFormat format,
                 const std::filesystem::path& path) {
    const std::string text = grade_text_of(report, format, kFileColumns, false);
    std::error_code error;
    if (path.has_parent_path())
        std::filesystem::create_directories(path.parent_path(), error);
    if (error) throw std::system_error(error, path.string());
    write_text_file(path, text);
}

std::string lesson_command(const std::string& text) {
    if (text.empty()) return {};
    const LessonStep place = read_lesson_step(text);
    const std::string command = "lockstep lesson " + place.lesson;
    return place.step ? fmt::format("{} --step {}", command, *place.step) : command;
}

}  // namespace lockstep::lessons

#include <fmt/format.h>

#include "lessons/grader/report/grade_formats.hpp"
#include "lessons/grader/report/grade_words.hpp"

namespace lockstep::lessons {

namespace {

/// As text between tags and as an attribute in double quotes.
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

    /// One line: what readers show without being asked.
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

}  // namespace lockstep::lessons

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

/// Returns "lockstep lesson gradient-accumulation --step 6"; empty for an empty text.
std::string lesson_command(const std::string& text);

/// The formats of a report.
enum class GradeFormat : std::uint8_t { text, json, gradescope, prairielearn, junit };

/// The formats, with their names.
inline const std::vector<std::pair<std::string, GradeFormat>> kGradeFormats{
    {"text", GradeFormat::text},
    {"json", GradeFormat::json},
    {"gradescope", GradeFormat::gradescope},
    {"prairielearn", GradeFormat::prairielearn},
    {"junit", GradeFormat::junit}};

/// Returns the report in a format, ending with a line break. It is valid at any stage of
/// grading, whatever the student's program printed: it is UTF-8 without the student's
/// control characters, and has a bounded length. Width (columns, at least 20) and colour
/// apply to `text`.
std::string grade_text_of(const GradeReport& report, GradeFormat format, int width,
                          bool colour);

/// Writes the report to a file. The report replaces an earlier file, and appears whole or
/// not at all. `text` has 80 columns and no colour. The folder is made if it is missing.
/// Throws std::system_error if the file cannot be written.
void write_grade(const GradeReport& report, GradeFormat format,
                 const std::filesystem::path& path);

// One function per format; its comment describes the content. The report must come from
// shown_report().

/// For people: no line is longer than `width` columns (at least 20).
std::string grade_as_text(const GradeReport& report, int width, bool colour);

/// Everything in the report. A missing value is null or an empty list.
///
///     assignment       "ring-all-reduce"
///     title            "A ring all-reduce"
///     lockstep         the version that graded
///     finished         whether grading reached its end
///     stopped          null, or what the machine lacked; then this is no grade
///     built            whether the program could be built
///     build_failure    null, or {file, line, message, lines}
///     earned, points   whole numbers: the sums over the criteria
///     seconds          that grading took, rounded to milliseconds
///     criteria         [{id, title, mark, earned, points, asked, measured, said,
///                      lesson, lesson_step}]; mark is "passed", "failed",
///                      "not_written" or "not_judged"
///     first            what the student should do first
///     drawn            "1234": the number for all random draws; `--drawn 1234` draws
///                      the same again
///     remarks          sentences about the machine
///     confinement      {layer: whether it was on}: "seccomp", "landlock", "namespaces",
///                      and "user" if root graded
std::string grade_as_json(const GradeReport& report);

/// Gradescope's results.json:
/// https://gradescope-autograders.readthedocs.io/en/latest/specs/
/// The total is next to the tests, so a report without tests is valid too. A criterion
/// that is not judged is a failed test with no points. If the machine stopped the
/// grading, there is neither total nor tests; Gradescope then says that the autograder
/// has failed.
std::string grade_as_gradescope(const GradeReport& report);

/// PrairieLearn's results.json: https://docs.prairielearn.com/externalGrading/ A program
/// that could not be built, or a grading that the machine stopped, is "invalid, not
/// gradable": it gets no points, and the attempt does not count.
std::string grade_as_prairielearn(const GradeReport& report);

/// JUnit XML in Jenkins' schema, which GitLab and pytest also use:
/// https://github.com/jenkinsci/xunit-plugin (types/model/xsd/junit-10.xsd). Criteria
/// that are not judged yet are skipped. A failed build or an unfinished grading is a test
/// with an error, so that it does not count as success.
std::string grade_as_junit(const GradeReport& report);

}  // namespace lockstep::lessons

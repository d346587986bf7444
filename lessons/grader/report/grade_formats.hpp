#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

/// "lockstep lesson gradient-accumulation --step 6"; empty for an empty text.
std::string lesson_command(const std::string& text);

/// The formats of a report.
enum class GradeFormat : std::uint8_t { text, json, gradescope, prairielearn, junit };

/// By name.
inline const std::vector<std::pair<std::string, GradeFormat>> kGradeFormats{
    {"text", GradeFormat::text},
    {"json", GradeFormat::json},
    {"gradescope", GradeFormat::gradescope},
    {"prairielearn", GradeFormat::prairielearn},
    {"junit", GradeFormat::junit}};

/// The report in a format, ending with a line break. It is valid at any stage of grading
/// and whatever the student's program said, in UTF-8, without control characters of the
/// student's, and bounded in length. Width (columns, at least 20) and colour are for
/// `text`.
std::string grade_text_of(const GradeReport& report, GradeFormat format, int width,
                          bool colour);

/// Writes the report to a file, which appears whole or not at all, in the place of one
/// that was there; `text` has 80 columns and no colour. The folder is made if it is
/// missing. Throws std::system_error if the file cannot be written.
void write_grade(const GradeReport& report, GradeFormat format,
                 const std::filesystem::path& path);

// One function a format, with what it holds. All of them take a report from
// shown_report().

/// For people: no line is longer than `width` columns, which is at least 20.
std::string grade_as_text(const GradeReport& report, int width, bool colour);

/// Everything that the report holds. What there is none of is null or an empty list.
///
///     assignment       "ring-all-reduce"
///     title            "A ring all-reduce"
///     lockstep         the version that graded
///     finished         whether grading came to its end
///     stopped          null, or what the machine lacked, so that it is no grade
///     built            whether the program could be built
///     build_failure    null, or {file, line, message, lines}
///     earned, points   whole numbers: the sums over the criteria
///     seconds          that grading took, to the millisecond
///     criteria         [{id, title, mark, earned, points, asked, measured, said,
///                      lesson, lesson_step}]; mark is "passed", "failed",
///                      "not_written" or "not_judged"
///     first            what the student does first
///     drawn            "1234": what sizes and values were drawn by; `--drawn 1234` draws
///                      the same again
///     remarks          sentences about the machine
///     confinement      {layer: whether it was on}: "seccomp", "landlock", "namespaces",
///                      and "user" where root graded
std::string grade_as_json(const GradeReport& report);

/// Gradescope's results.json:
/// https://gradescope-autograders.readthedocs.io/en/latest/specs/
/// The total stands beside the tests, so that a report without any is valid too; what has
/// not been judged is a failed test of no points. A grading that the machine stopped has
/// neither total nor tests, with which Gradescope says that the autograder has failed.
std::string grade_as_gradescope(const GradeReport& report);

/// PrairieLearn's results.json: https://docs.prairielearn.com/externalGrading/
/// A program that could not be built, and a grading that the machine stopped, are
/// "invalid, not gradable" there: no points, and the student keeps the attempt.
std::string grade_as_prairielearn(const GradeReport& report);

/// JUnit XML as Jenkins' schema has it, which GitLab and pytest share:
/// https://github.com/jenkinsci/xunit-plugin (types/model/xsd/junit-10.xsd) Criteria that
/// are not judged yet are skipped; a failed build and a grading that has not finished are
/// a test with an error, so that neither is taken for success.
std::string grade_as_junit(const GradeReport& report);

}  // namespace lockstep::lessons

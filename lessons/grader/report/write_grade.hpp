#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

/// What a report is written as; grade_formats.hpp says what each holds.
enum class GradeFormat : std::uint8_t { text, json, gradescope, prairielearn, junit };

/// "text", "json", "gradescope", "prairielearn", "junit": for messages, in this order.
const std::vector<std::string>& grade_format_names();

/// The format of that name, or none.
std::optional<GradeFormat> read_grade_format(const std::string& name);

/// The report in a format, ending with a line break. It is valid at any stage of grading
/// and whatever the student's program said, in UTF-8, without control characters of the
/// student's, and bounded in length. Width (columns, at least 20) and colour are for
/// `text`.
std::string grade_text_of(const GradeReport& report, GradeFormat format, int width,
                          bool colour);

/// The same as a file that appears whole or not at all, in the place of one that was
/// there; `text` has 80 columns and no colour. The folder is made where it is missing.
/// Throws std::system_error where it cannot.
void write_grade(const GradeReport& report, GradeFormat format,
                 const std::filesystem::path& path);

}  // namespace lockstep::lessons

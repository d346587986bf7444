// Reports at every stage of grading, and with texts that formats must escape or cut.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::test {

/// Nothing is judged yet.
lessons::GradeReport sample_grade();

/// The first criteria have these marks; the other criteria are not judged.
lessons::GradeReport sample_grade(const std::vector<lessons::Mark>& marks);

/// The grade of a program that could not be built.
lessons::GradeReport sample_of_failed_build();

/// Returns all bytes, escape sequences, mark-up, broken UTF-8, right-to-left text.
std::string hostile_text();

/// Returns a report with hostile_text() in place of every text.
lessons::GradeReport hostile_grade();

/// A hundred criteria. Their texts have the greatest length that is shown, and every
/// format writes each of their characters as several characters.
lessons::GradeReport longest_grade();

/// Returns all of these reports and some more, by name.
std::vector<std::pair<std::string, lessons::GradeReport>> sample_grades();

}  // namespace lockstep::test

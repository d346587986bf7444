// Reports at every stage of grading, and reports of programs whose texts no format likes.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::test {

/// Nothing is judged yet.
lessons::GradeReport sample_grade();

/// The first criteria have these marks; the rest is not judged.
lessons::GradeReport sample_grade(const std::vector<lessons::Mark>& marks);

/// The same program, which could not be built.
lessons::GradeReport sample_of_failed_build();

/// Every byte, escape sequences, mark-up, broken UTF-8, text that runs backwards.
std::string hostile_text();

/// hostile_text() in place of every text.
lessons::GradeReport hostile_grade();

/// A hundred criteria with texts of the greatest length shown, in characters that every
/// format writes as several.
lessons::GradeReport longest_grade();

/// All of these and some more, by name.
std::vector<std::pair<std::string, lessons::GradeReport>> sample_grades();

}  // namespace lockstep::test

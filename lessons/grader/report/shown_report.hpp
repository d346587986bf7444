#pragma once

#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

/// The report as it may be written in any format. Its texts are clean (clean_text.hpp)
/// and bounded: a report of a hundred criteria stays below the megabyte that PrairieLearn
/// takes, whatever the student's program says. All but `said` and what the compiler
/// showed are single lines. A program that could not be built has earned nothing. The
/// seconds are finite and not negative.
GradeReport shown_report(const GradeReport& report);

}  // namespace lockstep::lessons

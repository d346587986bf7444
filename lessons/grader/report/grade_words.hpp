#pragma once

#include <optional>
#include <string>

#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

/// "not judged", "not written", "failed", "passed".
std::string mark_text(Mark mark);

/// The lesson and the step that teach something.
struct LessonStep {
    std::string lesson;
    std::optional<int> step;
};

/// Reads "gradient-accumulation, step 6"; what has no such end is a lesson's name.
LessonStep read_lesson_step(const std::string& text);

/// "lockstep lesson gradient-accumulation --step 6"; empty for an empty text.
std::string lesson_command(const std::string& text);

/// "a1.2-bytes: all_gather sends what it must, and no more"
std::string name_text(const CriterionReport& criterion);

/// "ring.cpp:12: expected ';' before '}' token", with as much of the place as is known.
std::string build_error_text(const BuildFailure& failure);

/// "The program could not be built, and so earns none of the 13 points."
std::string not_built_text(const GradeReport& report);

/// "Grading has not finished: 3 of 7 criteria are judged."
std::string not_finished_text(const GradeReport& report);

/// "4 of 13 points", "1 of 1 point"
std::string points_text(int earned, int points);

/// Asked, measured, said and the lesson's command, each from a line of its own on; empty
/// if there is none of them.
std::string details_text(const CriterionReport& criterion);

/// Returns what is said of the work as a whole, in lines: that it could not be built,
/// with what the compiler showed; that grading has not finished; what to do first; the
/// remarks. It is empty if there is none of these.
std::string whole_text(const GradeReport& report);

}  // namespace lockstep::lessons

#pragma once

#include <string>
#include <vector>

#include "lessons/runner/request.hpp"

namespace lockstep::lessons {

// How the program ends.
inline constexpr int kSuccess = 0;
inline constexpr int kFailed =
    1;  ///< a check or a comparison, or a program found at fault
inline constexpr int kUsage = 2;    ///< wrong usage
inline constexpr int kLacking = 3;  ///< the machine lacks something
inline constexpr int kBroken = 4;   ///< a mistake of Lockstep itself

// Each command prints to standard output and returns an exit status. What goes wrong is
// thrown.

int list_lessons();
/// `arguments` are the program's: --backend nccl starts it again, once a rank.
int run_lesson(const LessonRequest& request, const std::vector<std::string>& arguments);
int compare_runs(const CompareRequest& request);
int compare_backends(const BackendsRequest& request);
/// Status kFailed where the schedule deadlocks.
int show_schedule(const ScheduleRequest& request);
int show_fault(const FaultRequest& request);
int list_assignments();
int new_assignment(const NewAssignmentRequest& request);
int show_targets(const TargetsRequest& request);
int pack_gradescope(const GradescopeRequest& request);
/// Status kFailed where points are missing.
int grade_folder(const GradeRequest& request);
int run_doctor(const DoctorRequest& request);

/// The lesson with this name; UsageError names those there are.
const LessonEntry& find_lesson(const std::string& slug);

/// What a lesson has run, as one JSON document: what it was asked for, its steps with the
/// checks of each, metrics.json, and the diagnosis where a mistake ended it; the steps
/// are then those before. `checks_after` counts the checks after each step.
std::string lesson_json(const LessonEntry& lesson, const LessonOptions& options,
                        const std::vector<Step>& steps,
                        const std::vector<std::size_t>& checks_after,
                        const Record& record);

bool all_passed(const Record& record);

/// How the program ends, and what it says on standard error: whole lines.
struct CommandEnding {
    int status = kSuccess;
    std::string text;
};

/// In a handler: what the exception was, in one line or, for a fault in a distributed
/// program, in the lines of its diagnosis, and the exit status it asks for.
CommandEnding ending_of_exception();
/// The same, said; returns the status.
int report_exception();

}  // namespace lockstep::lessons

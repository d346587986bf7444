#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "lessons/grader/grade.hpp"
#include "lessons/grader/report/grade_formats.hpp"

namespace lockstep::lessons {

/// The submissions of a course, to be graded with one command.
struct GradeManyPlan {
    GradePlan each;  ///< everything except the folder
    std::vector<std::filesystem::path> submissions;
    /// A folder for grades.csv and one report per submission: NAME.json, or the name that
    /// the format uses.
    std::filesystem::path out;
    GradeFormat format = GradeFormat::text;
    int at_once = 1;
    /// Keeps the reports and points that an earlier command left in `out`, if the
    /// submission has not changed since and the version of Lockstep is the same.
    bool goes_on = false;
};

struct GradedMany {
    std::size_t with_all_points = 0;
    std::size_t graded = 0;
    std::size_t stopped = 0;  ///< not graded, because the machine lacked something
    std::size_t kept = 0;     ///< graded by an earlier command
};

/// Grades each submission as grade() does, several at the same time, each in its own
/// process. Writes a report for each, and a table with the points by criterion: a line
/// per submission, in the order of the submissions. Whenever a submission is done,
/// rewrites the table and calls `done` with the number of finished submissions. Throws
/// UsageError if two submissions have the same name, or if `out` is not empty and the
/// plan does not (or cannot) continue an earlier grading there.
GradedMany grade_many(const GradeManyPlan& plan, const Kit& kit,
                      const std::function<void(std::size_t)>& done);

}  // namespace lockstep::lessons

#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <vector>

#include "lessons/grader/grade.hpp"
#include "lessons/grader/report/grade_formats.hpp"

namespace lockstep::lessons {

/// The submissions of a course, to be graded in one go.
struct GradeManyPlan {
    GradePlan each;  ///< all but the folder
    std::vector<std::filesystem::path> submissions;
    /// A folder for grades.csv and a report each, NAME.json or what the format's are
    /// called.
    std::filesystem::path out;
    GradeFormat format = GradeFormat::text;
    int at_once = 1;
    /// Keeps what an earlier command left in `out`: submissions that have a report and
    /// points there, by this version of Lockstep, and that have not changed since.
    bool goes_on = false;
};

struct GradedMany {
    std::size_t with_all_points = 0;
    std::size_t graded = 0;
    std::size_t stopped = 0;  ///< by what the machine lacks
    std::size_t kept = 0;     ///< as an earlier command had graded them
};

/// Grades each as grade() does, some at a time, each in a process of its own; a report
/// for each, and a table of all that is written anew whenever one is done: a line a
/// submission, in their order, with points by criterion. `done` is told how many are.
/// Throws UsageError if two submissions have the same name, or if something is in `out`
/// already that is not to be gone on with, or cannot be.
GradedMany grade_many(const GradeManyPlan& plan, const Kit& kit,
                      const std::function<void(std::size_t)>& done);

}  // namespace lockstep::lessons

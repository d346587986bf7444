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
};

struct GradedMany {
    std::size_t with_all_points = 0;
    std::size_t graded = 0;
    std::size_t stopped = 0;  ///< by what the machine lacks
};

/// Grades each as grade() does, some at a time, each in a process of its own; a report
/// for each, and a table of all that is written anew whenever one is done: a line a
/// submission, in their order, with points by criterion. `done` is told how many are.
/// Throws UsageError if two submissions have the same name, or if something is in `out`
/// already.
GradedMany grade_many(const GradeManyPlan& plan, const Kit& kit,
                      const std::function<void(std::size_t)>& done);

}  // namespace lockstep::lessons

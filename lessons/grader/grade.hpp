#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lessons/grader/assignment.hpp"
#include "lessons/grader/judge.hpp"
#include "lessons/grader/kit.hpp"
#include "lessons/grader/report/grade_report.hpp"

namespace lockstep::lessons {

struct GradePlan {
    const Assignment* assignment = nullptr;
    std::filesystem::path folder;  ///< the student's, or a .zip (Submission)
    std::vector<std::string> compiler{"c++"};
    /// After this time the grading stops: the machine is too slow or too busy.
    std::chrono::seconds longest{3600};
    bool machine_is_checked = false;    ///< require_can_grade() was called already
    bool requires_confinement = false;  ///< stops if a confinement layer is missing
    bool shows_output = false;          ///< quotes the output of a program that failed
    /// If set, repeats the random draws of the report that has this number.
    std::optional<std::int64_t> drawn{};
};

/// Called whenever the report has changed, and once before anything is judged.
using GradeSink = std::function<void(const GradeReport& report)>;

/// Builds the student's program and judges it. The student's mistakes are in the report.
/// If the machine or the grader has a problem, throws an exception; the last report that
/// `changed` gets says why the grading stopped.
GradeReport grade(const GradePlan& plan, const Kit& kit, const GradeSink& changed);

}  // namespace lockstep::lessons

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
    std::chrono::seconds longest{400};  ///< what is not judged by then is not
    bool machine_is_checked = false;    ///< require_can_grade() was called already
    bool requires_confinement = false;  ///< stops where a layer of it is missing
    bool shows_output = false;          ///< tells what a program printed that ended badly
    /// Draws as the grading did whose report has this number; else anew.
    std::optional<std::int64_t> drawn{};
};

/// Told of the report whenever it has changed: first with nothing judged.
using GradeSink = std::function<void(const GradeReport& report)>;

/// Builds what is in the student's folder and judges it. What the student did wrong is in
/// the report. What the machine or the grader lacks is thrown, and the report says that
/// it stopped for it.
GradeReport grade(const GradePlan& plan, const Kit& kit, const GradeSink& changed);

}  // namespace lockstep::lessons

#pragma once

#include <string>
#include <vector>

#include "lessons/tools/schedule_page.hpp"

namespace lockstep::lessons {

/// A formula of src/pipeline/generators.hpp about a generator, with a measurement.
struct ScheduleFormula {
    std::string what;       ///< "makespan", "bubble", "in flight", "between halves"
    std::string text;       ///< "(m + p - 1)(t_f + t_b)"
    std::string condition;  ///< under which the formula holds; empty if always
    bool applies = true;    ///< whether the condition is met
    std::string value;      ///< the formula's result, or a list of each stage's result
    std::string measured;

    bool equal() const { return value == measured; }
};

/// Returns the formulas of a generator's schedule; none for a user's own schedule, and
/// none if the stages have different times.
std::vector<ScheduleFormula> schedule_formulas(const ScheduleSettings& settings,
                                               const ExaminedSchedule& examined);

}  // namespace lockstep::lessons

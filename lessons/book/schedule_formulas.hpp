#pragma once

#include <string>
#include <vector>

#include "lessons/tools/schedule_page.hpp"

namespace lockstep::lessons {

/// A statement of src/pipeline/generators.hpp about a generator, beside a measurement.
struct ScheduleFormula {
    std::string what;       ///< "makespan", "bubble", "in flight", "between halves"
    std::string text;       ///< "(m + p - 1)(t_f + t_b)"
    std::string condition;  ///< under which it holds; empty if always
    bool applies = true;    ///< whether the condition is met
    std::string value;      ///< what it comes to, of all stages if it is a stage's
    std::string measured;

    bool equal() const { return value == measured; }
};

/// Returns the formulas of a generator's schedule; none for a schedule of one's own, and
/// none if the stages differ in their times.
std::vector<ScheduleFormula> schedule_formulas(const ScheduleSettings& settings,
                                               const ExaminedSchedule& examined);

}  // namespace lockstep::lessons

#pragma once

#include <span>
#include <string>

#include "src/run/diagnosis.hpp"

namespace lockstep {

/// A class of mistakes of distributed programs.
struct FaultClass {
    const char* id;     ///< "F02"
    const char* title;  ///< "counts differ"
    const char* cause;  ///< the likely cause, and what to change
};

/// All classes, in order.
std::span<const FaultClass> fault_classes();

/// Returns the page that explains a class, from the project's root:
/// "lessons/faults/F02.md".
std::string fault_page(const std::string& fault);

/// Returns a diagnosis with only the class, its title, its likely cause and its page.
Diagnosis diagnosis_of(const std::string& fault);

}  // namespace lockstep

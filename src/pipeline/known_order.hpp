#pragma once

#include <string>

#include "src/core/units.hpp"

namespace lockstep {

/// A generator's schedule that has the parts and the instructions of another schedule.
struct KnownOrder {
    std::string name;
    Picoseconds bubble = 0;
    double memory = 0;  ///< the peak of the stage that holds most
};

}  // namespace lockstep

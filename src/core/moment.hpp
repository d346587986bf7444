#pragma once

#include "src/core/units.hpp"

namespace lockstep {

/// When in a training program something was done, as far as the program says so.
struct Moment {
    const char* phase = "";  ///< "forward"; empty outside of phases
    int micro_batch = -1;    ///< of the phase; negative where it has none
    int step = 0;            ///< updates before it
    Picoseconds time = 0;    ///< virtual
};

}  // namespace lockstep

#pragma once

#include <string>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/timer.hpp"

namespace lockstep {

struct SchedulePictureOptions {
    std::string title;    ///< empty is none
    int width = 80;       ///< columns of text, at least 40
    bool colour = false;  ///< ANSI colours, of text
    KeptMemory kept;      ///< what the memory strip counts
    double ticks = 1;  ///< of the timing's whole numbers, in one unit shown
    /// What draws all, where text is too narrow.
    std::string drawn_by = "--svg";
};

// The classic picture of a schedule: a row a stage, time to the right, a
// box for each computation with the number of its micro-batch, forwards and
// the halves of backward each in a colour that the colour-blind can tell
// apart, nothing where a stage is idle; below, a strip for each stage of
// what it holds (src/pipeline/holdings.hpp), its peak marked. `timing` is
// the schedule's.

/// As text. Times that do not fit the width are drawn in proportion, as far
/// as columns allow.
std::string schedule_text(const Schedule& schedule, const Timing& timing,
                          const SchedulePictureOptions& options);

/// As a standalone SVG, wide enough for its numbers to be read.
std::string schedule_svg(const Schedule& schedule, const Timing& timing,
                         const SchedulePictureOptions& options);

}  // namespace lockstep

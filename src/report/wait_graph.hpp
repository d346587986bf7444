#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/run/diagnosis.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// Ranks that do the same in a picture of waiting ranks, and the place of their box.
struct WaitBox {
    std::vector<int> ranks;
    std::string operation;
    std::string place;              ///< file and line; empty if there is none
    std::vector<std::size_t> next;  ///< boxes that it waits for, ascending
    bool waits = true;              ///< false for ranks that do not wait
    bool in_circle = false;
    std::size_t column = 0;
    std::size_t row = 0;
};

/// Returns the boxes of a diagnosis' waits, with their places. The boxes of the circle
/// are in the first two columns, down the left and up the right. Without a circle, boxes
/// that do not wait are in the first column. Then the other boxes follow: the more waits
/// they are away from the first boxes, the further to the right. No two boxes have the
/// same place.
std::vector<WaitBox> wait_boxes(const Diagnosis& diagnosis);

/// Draws which ranks waited for which other ranks when a run stopped, as a standalone
/// SVG. Each of the diagnosis' waits has a box with its ranks, their operation and line.
/// Ranks that do not wait, but for which others wait, have a grey box. Arrows lead from a
/// box to the boxes that it waits for. The arrows of a circle are thick and have another
/// colour, which colour-blind readers can also tell apart. If `report` has a trace, the
/// timeline up to the stop is below.
std::string wait_svg(const Diagnosis& diagnosis, const RunReport* report = nullptr);

}  // namespace lockstep

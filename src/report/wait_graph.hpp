#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/run/diagnosis.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// Ranks that do the same in a picture of who waits for whom, and where their box is.
struct WaitBox {
    std::vector<int> ranks;
    std::string operation;
    std::string place;              ///< file and line; empty if there is none
    std::vector<std::size_t> next;  ///< boxes that it waits for, ascending
    bool waits = true;              ///< false of ranks that wait for none
    bool in_circle = false;
    std::size_t column = 0;
    std::size_t row = 0;
};

/// Returns the boxes of a diagnosis' waits, placed: those of the circle in the first two
/// columns, down the left and up the right, or if there is none those that wait for
/// nobody in the first; then a column for each step that the others are away from them.
/// No two are in one place.
std::vector<WaitBox> wait_boxes(const Diagnosis& diagnosis);

/// Who waited for whom when a run stopped, as a standalone SVG: a box for the ranks of
/// each of the diagnosis' waits, with their operation and line, and one for the ranks
/// that are waited for and wait for none, grey; an arrow from each to those that it waits
/// for. A circle of waiting is thick and of another colour, also for the colour-blind.
/// Below it, if `report` has a trace, is the timeline up to the stop.
std::string wait_svg(const Diagnosis& diagnosis, const RunReport* report = nullptr);

}  // namespace lockstep

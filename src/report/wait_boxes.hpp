#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "src/run/diagnosis.hpp"

namespace lockstep {

/// Ranks that do the same in a picture of who waits for whom, and where their box is.
struct WaitBox {
    std::vector<int> ranks;
    std::string operation;
    std::string place;              ///< file and line; empty where there is none
    std::vector<std::size_t> next;  ///< boxes that it waits for, ascending
    bool waits = true;              ///< false of ranks that wait for none
    bool in_circle = false;
    std::size_t column = 0;
    std::size_t row = 0;
};

/// The boxes of a diagnosis' waits, placed: those of the circle in the first two columns,
/// down the left and up the right, or where there is none those that wait for nobody in
/// the first; then a column for each step that the others are away from them. No two are
/// in one place.
std::vector<WaitBox> wait_boxes(const Diagnosis& diagnosis);

}  // namespace lockstep

#pragma once

#include <vector>

#include "src/chart/chart.hpp"

namespace lockstep {

/// Time cut into equal cells: columns of text, or pixels.
struct CellGrid {
    Picoseconds end = 1;
    int columns = 1;

    /// Returns a grid of at most `most` columns. If all boxes begin and end at multiples
    /// of one unit of time, and the units are few enough, all units have the same number
    /// of columns.
    static CellGrid of(const std::vector<const Row*>& rows, Picoseconds end, int most);

    int column_of(Picoseconds time) const;
};

/// Returns the row's boxes that are inside no other box and are not empty.
std::vector<const Box*> outer_boxes(const Row& row);

/// Returns for each column the index in `boxes` of the box that is drawn there: the box
/// that fills most of the column, or -1 if more than half of it is idle. A box that would
/// vanish gets an idle column, or one of several columns of the box that is drawn there.
std::vector<int> fill_cells(const std::vector<const Box*>& boxes, const CellGrid& grid);

}  // namespace lockstep

#pragma once

#include <vector>

#include "src/chart/chart.hpp"

namespace lockstep {

/// Time cut into equal cells: columns of text, or pixels.
struct CellGrid {
    Picoseconds end = 1;
    int columns = 1;

    /// A grid of at most `most` columns. If all boxes begin and end at few enough
    /// multiples of one time, each such time has as many columns as any other.
    static CellGrid of(const std::vector<const Row*>& rows, Picoseconds end, int most);

    int column_of(Picoseconds time) const;
};

/// The row's boxes that are in no other and take time.
std::vector<const Box*> outer_boxes(const Row& row);

/// Returns for each column the place in `boxes` of what is drawn there: the box that
/// fills most of it, or -1 if more than half of it is idle. A box that would vanish takes
/// an idle column, or one from the box that is drawn in its place if that has several.
std::vector<int> fill_cells(const std::vector<const Box*>& boxes, const CellGrid& grid);

}  // namespace lockstep

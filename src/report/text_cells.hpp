#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/report/timeline_rows.hpp"

namespace lockstep {

/// Time cut into columns of text.
struct CellGrid {
    Picoseconds end = 1;
    int columns = 1;

    /// At most `most` columns. Where all boundaries of the spans lie on few enough
    /// multiples of one time, a column count that draws equal spans equally wide.
    static CellGrid of(const std::vector<TimelineRow>& rows, Picoseconds end, int most);

    int column_of(Picoseconds time) const;
};

/// What is drawn of a row: its outer spans that take time.
std::vector<const TraceEvent*> drawn_spans(const TimelineRow& row);

/// For each column the index in `spans` of what is drawn there: what fills most of it, or
/// -1 where more than half of it is idle. A span that would vanish takes an idle column.
std::vector<int> fill_cells(const std::vector<const TraceEvent*>& spans,
                            const CellGrid& grid);

/// Time that the row was busy; gaps between the operations of a phase are not.
Picoseconds busy_time(const TimelineRow& row);

}  // namespace lockstep

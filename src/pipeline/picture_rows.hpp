#pragma once

#include <vector>

#include "src/pipeline/timer.hpp"
#include "src/report/text_cells.hpp"

namespace lockstep {

/// An instruction that takes time, as it is drawn.
struct StageBox {
    const Instruction* work;
    TimeSpan span;
};

/// A stage's computations that take time, in order; they do not overlap.
std::vector<StageBox> stage_boxes(const Schedule& schedule,
                                  const Timing& timing, int stage);
/// The same of its messages.
std::vector<StageBox> stage_messages(const Schedule& schedule,
                                     const Timing& timing, int stage);

/// At most `most` columns; where all boxes begin and end at few enough
/// multiples of one time, each such time is equally wide.
CellGrid grid_of(const std::vector<std::vector<StageBox>>& rows,
                 Picoseconds end, int most);
/// For each column the index of the box that is drawn there, -1 for none.
/// Boxes are drawn wherever there are columns enough.
std::vector<int> columns_of_boxes(const std::vector<StageBox>& boxes,
                                  const CellGrid& grid);

}  // namespace lockstep

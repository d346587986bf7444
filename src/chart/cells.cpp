#include "src/chart/cells.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep {

namespace {

/// Returns a divisor that makes times smaller than 2^50. Their products with a number of
/// columns then cannot overflow.
std::int64_t cut_to_fit(Picoseconds end) {
    return (end >> 50) + 1;
}

/// Returns for each column the box that fills most of it; -1 if it is mostly idle.
std::vector<int> largest_boxes(const std::vector<const Box*>& boxes,
                               const CellGrid& grid) {
    const std::int64_t cut = cut_to_fit(grid.end);
    const std::int64_t cell = grid.end / cut;
    const auto count = static_cast<std::size_t>(grid.columns);
    std::vector<int> shown(count, -1);
    std::vector<std::int64_t> most(count, 0);
    std::vector<std::int64_t> busy(count, 0);
    // Times here are multiplied by `columns`, so that a column is `cell` long.
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        const std::int64_t start = boxes[i]->start / cut * grid.columns;
        const std::int64_t end = boxes[i]->end / cut * grid.columns;
        for (std::int64_t c = start / cell; c < grid.columns && c * cell < end; ++c) {
            const std::int64_t part =
                std::min(end, (c + 1) * cell) - std::max(start, c * cell);
            busy[c] += part;
            if (part <= most[c]) continue;
            most[c] = part;
            shown[c] = static_cast<int>(i);
        }
    }
    for (std::size_t c = 0; c < count; ++c)
        if (2 * busy[c] < cell) shown[c] = -1;
    return shown;
}

/// Gives each box that has no column a column, if possible.
void show_hidden(const std::vector<const Box*>& boxes, const CellGrid& grid,
                 std::vector<int>& shown) {
    struct Columns {
        int first = 0;
        int count = 0;
    };
    std::vector<Columns> columns(boxes.size());
    for (int c = 0; c < grid.columns; ++c)
        if (shown[c] >= 0 && columns[shown[c]].count++ == 0) columns[shown[c]].first = c;
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        if (columns[i].count > 0) continue;
        const Picoseconds middle =
            boxes[i]->start + (boxes[i]->end - boxes[i]->start) / 2;
        const int there = std::min(grid.column_of(middle), grid.columns - 1);
        const int other = shown[there];
        int mine = there;
        if (other >= 0) {
            Columns& others = columns[other];
            if (others.count < 2) continue;
            const bool before = static_cast<int>(i) < other;
            mine = before ? others.first : others.first + others.count - 1;
            others.first += before ? 1 : 0;
            --others.count;
        }
        columns[i] = {mine, 1};
        shown[mine] = static_cast<int>(i);
    }
}

}  // namespace

CellGrid CellGrid::of(const std::vector<const Row*>& rows, Picoseconds end, int most) {
    CellGrid grid{std::max<Picoseconds>(end, 1), std::max(most, 1)};
    Picoseconds unit = grid.end;
    for (const Row* row : rows)
        for (const Box* box : outer_boxes(*row))
            unit = std::gcd(unit, std::gcd(box->start, box->end));
    const Picoseconds units = grid.end / unit;
    if (units <= grid.columns) grid.columns -= static_cast<int>(grid.columns % units);
    return grid;
}

int CellGrid::column_of(Picoseconds time) const {
    const std::int64_t cut = cut_to_fit(end);
    return static_cast<int>(time / cut * columns / std::max<std::int64_t>(end / cut, 1));
}

std::vector<const Box*> outer_boxes(const Row& row) {
    std::vector<const Box*> boxes;
    for (const Box& box : row.boxes)
        if (box.depth == 0 && box.end > box.start) boxes.push_back(&box);
    return boxes;
}

std::vector<int> fill_cells(const std::vector<const Box*>& boxes, const CellGrid& grid) {
    std::vector<int> shown = largest_boxes(boxes, grid);
    show_hidden(boxes, grid, shown);
    return shown;
}

}  // namespace lockstep

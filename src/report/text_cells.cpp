#include "src/report/text_cells.hpp"

#include <algorithm>
#include <numeric>

namespace lockstep {

namespace {

/// Times are cut to 2^50 so that a product with a column count cannot overflow.
std::int64_t cut_to_fit(Picoseconds end) {
    return (end >> 50) + 1;
}

}  // namespace

CellGrid CellGrid::of(const std::vector<TimelineRow>& rows, Picoseconds end, int most) {
    CellGrid grid{std::max<Picoseconds>(end, 1), std::max(most, 1)};
    Picoseconds unit = grid.end;
    for (const TimelineRow& row : rows)
        for (const TraceEvent* span : drawn_spans(row))
            unit = std::gcd(unit, std::gcd(span->start, span->end));
    const Picoseconds units = grid.end / unit;
    if (units <= grid.columns) grid.columns -= static_cast<int>(grid.columns % units);
    return grid;
}

int CellGrid::column_of(Picoseconds time) const {
    const std::int64_t cut = cut_to_fit(end);
    return static_cast<int>(time / cut * columns / std::max<std::int64_t>(end / cut, 1));
}

std::vector<const TraceEvent*> drawn_spans(const TimelineRow& row) {
    std::vector<const TraceEvent*> spans;
    for (const RowSpan& span : row.spans)
        if (span.depth == 0 && span.event->end > span.event->start)
            spans.push_back(span.event);
    return spans;
}

std::vector<int> fill_cells(const std::vector<const TraceEvent*>& spans,
                            const CellGrid& grid) {
    const std::int64_t cut = cut_to_fit(grid.end);
    const std::int64_t cell = grid.end / cut;
    const auto count = static_cast<std::size_t>(grid.columns);
    std::vector<int> shown(count, -1);
    std::vector<std::int64_t> most(count, 0);
    std::vector<std::int64_t> busy(count, 0);
    // Times are in units in which a cell is `cell` long.
    for (std::size_t i = 0; i < spans.size(); ++i) {
        const std::int64_t start = spans[i]->start / cut * grid.columns;
        const std::int64_t end = spans[i]->end / cut * grid.columns;
        for (std::int64_t c = start / cell; c < grid.columns && c * cell < end; ++c) {
            const auto at = static_cast<std::size_t>(c);
            const std::int64_t part =
                std::min(end, (c + 1) * cell) - std::max(start, c * cell);
            busy[at] += part;
            if (part <= most[at]) continue;
            most[at] = part;
            shown[at] = static_cast<int>(i);
        }
    }
    std::vector<bool> visible(spans.size(), false);
    for (std::size_t c = 0; c < count; ++c) {
        if (2 * busy[c] < cell) shown[c] = -1;
        if (shown[c] >= 0) visible[shown[c]] = true;
    }
    for (std::size_t i = 0; i < spans.size(); ++i) {
        const Picoseconds middle =
            spans[i]->start + (spans[i]->end - spans[i]->start) / 2;
        const int at = std::min(grid.column_of(middle), grid.columns - 1);
        int& target = shown[at];
        if (!visible[i] && target < 0) target = static_cast<int>(i);
    }
    return shown;
}

Picoseconds busy_time(const TimelineRow& row) {
    Picoseconds busy = 0;
    Picoseconds outer = 0;
    Picoseconds inner = 0;
    for (const RowSpan& span : row.spans) {
        const Picoseconds length = span.event->end - span.event->start;
        if (span.depth == 1) inner += length;
        if (span.depth != 0) continue;
        busy += inner > 0 ? inner : outer;
        outer = length;
        inner = 0;
    }
    return busy + (inner > 0 ? inner : outer);
}

}  // namespace lockstep

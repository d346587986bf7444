#include "src/pipeline/picture_rows.hpp"

#include <algorithm>

#include "src/pipeline/picture_look.hpp"

namespace lockstep {

namespace {

std::vector<StageBox> boxes_of(const Schedule& schedule,
                               const Timing& timing, int stage,
                               bool (*wanted)(InstructionKind)) {
    std::vector<StageBox> boxes;
    const std::vector<Instruction>& work = schedule.of(stage);
    const auto& spans = timing.spans[stage];
    for (std::size_t i = 0; i < work.size(); ++i)
        if (wanted(work[i].kind) && spans[i].end > spans[i].start)
            boxes.push_back({&work[i], spans[i]});
    return boxes;
}

/// The boxes as a timeline has them, for its grid of columns.
std::vector<TraceEvent> as_events(const std::vector<StageBox>& boxes) {
    std::vector<TraceEvent> events(boxes.size());
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        events[i].start = boxes[i].span.start;
        events[i].end = boxes[i].span.end;
    }
    return events;
}

/// A box that no column shows takes one from the box that is shown in its
/// place, where that has several.
void show_hidden(const std::vector<StageBox>& boxes, const CellGrid& grid,
                 std::vector<int>& shown) {
    struct Columns {
        int first = 0;
        int count = 0;
    };
    std::vector<Columns> columns(boxes.size());
    for (int c = 0; c < grid.columns; ++c) {
        const int box = shown[c];
        if (box < 0) continue;
        Columns& mine = columns[box];
        if (mine.count++ == 0) mine.first = c;
    }
    for (std::size_t i = 0; i < boxes.size(); ++i) {
        if (columns[i].count > 0) continue;
        const TimeSpan& span = boxes[i].span;
        const Picoseconds middle = span.start + (span.end - span.start) / 2;
        const int there =
            shown[std::min(grid.column_of(middle), grid.columns - 1)];
        if (there < 0) continue;
        Columns& others = columns[there];
        if (others.count < 2) continue;
        const bool before = static_cast<int>(i) < there;
        columns[i] = {
            before ? others.first : others.first + others.count - 1, 1};
        shown[columns[i].first] = static_cast<int>(i);
        others.first += before ? 1 : 0;
        --others.count;
    }
}

}  // namespace

std::vector<StageBox> stage_boxes(const Schedule& schedule,
                                  const Timing& timing, int stage) {
    return boxes_of(schedule, timing, stage, is_computation);
}

std::vector<StageBox> stage_messages(const Schedule& schedule,
                                     const Timing& timing, int stage) {
    return boxes_of(schedule, timing, stage, is_message);
}

CellGrid grid_of(const std::vector<std::vector<StageBox>>& rows,
                 Picoseconds end, int most) {
    std::vector<std::vector<TraceEvent>> events;
    std::vector<TimelineRow> timeline(rows.size());
    for (std::size_t r = 0; r < rows.size(); ++r) {
        events.push_back(as_events(rows[r]));
        for (const TraceEvent& event : events.back())
            timeline[r].spans.push_back({&event, 0});
    }
    return CellGrid::of(timeline, end, most);
}

std::vector<int> columns_of_boxes(const std::vector<StageBox>& boxes,
                                  const CellGrid& grid) {
    const std::vector<TraceEvent> events = as_events(boxes);
    std::vector<const TraceEvent*> spans;
    spans.reserve(events.size());
    for (const TraceEvent& event : events)
        spans.push_back(&event);
    std::vector<int> shown = fill_cells(spans, grid);
    show_hidden(boxes, grid, shown);
    return shown;
}

}  // namespace lockstep

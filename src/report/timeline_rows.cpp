#include "src/report/timeline_rows.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace lockstep {

namespace {

/// The compute queue is first, copies are last, and communicators by name are in between.
int order_of(const std::string& queue) {
    if (queue == "compute") return 0;
    return queue == "copy" ? 2 : 1;
}

/// The order of spans: by start, and outer spans before inner spans, that is, the longer
/// first, and a phase before an operation of the same length.
bool comes_before(const TraceEvent* a, const TraceEvent* b) {
    return std::tuple(a->start, -a->end, !a->is_phase()) <
           std::tuple(b->start, -b->end, !b->is_phase());
}

/// A row that is being filled, and the ends of its spans that have not ended yet.
struct Lane {
    std::vector<RowSpan> spans;
    std::vector<Picoseconds> open;

    bool take(const TraceEvent& event) {
        while (!open.empty() && open.back() <= event.start)
            open.pop_back();
        if (!open.empty() && open.back() < event.end) return false;
        spans.push_back({&event, static_cast<int>(open.size())});
        open.push_back(event.end);
        return true;
    }
};

void deal(std::vector<const TraceEvent*>& events, TimelineRow row,
          std::vector<TimelineRow>& rows) {
    std::ranges::stable_sort(events, comes_before);
    std::vector<Lane> lanes;
    for (const TraceEvent* event : events) {
        const auto taken =
            std::ranges::find_if(lanes, [&](Lane& lane) { return lane.take(*event); });
        if (taken == lanes.end()) lanes.emplace_back().take(*event);
    }
    for (Lane& lane : lanes) {
        row.spans = std::move(lane.spans);
        rows.push_back(row);
        ++row.lane;
    }
}

}  // namespace

std::string TimelineRow::label() const {
    return lane == 0 ? queue : queue + " (" + std::to_string(lane + 1) + ")";
}

std::vector<TimelineRow> timeline_rows(const RunReport& report, bool with_waits) {
    using Key = std::tuple<int, int, std::string>;
    std::map<Key, std::vector<const TraceEvent*>> queues;
    for (const TraceEvent& event : report.trace)
        if (with_waits || event.kind != "wait")
            queues[{event.rank, order_of(event.queue), event.queue}].push_back(&event);
    std::vector<TimelineRow> rows;
    for (auto& [key, events] : queues)
        deal(events, {std::get<0>(key), std::get<2>(key), 0, {}}, rows);
    return rows;
}

Picoseconds timeline_end(const RunReport& report) {
    Picoseconds end = report.makespan();
    for (const TraceEvent& event : report.trace)
        end = std::max(end, event.end);
    for (const TraceFlow& flow : report.flows)
        end = std::max(end, flow.end);
    for (const TraceMemory& level : report.memory_trace)
        end = std::max(end, level.time);
    return end;
}

}  // namespace lockstep

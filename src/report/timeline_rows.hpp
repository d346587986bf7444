#pragma once

#include <string>
#include <vector>

#include "src/run/run_report.hpp"

namespace lockstep {

/// A span in its row. A span of depth 0 is not inside another.
struct RowSpan {
    const TraceEvent* event;
    int depth;
};

/// A queue of a device with its spans. Any two spans are disjoint, or one contains the
/// other. Spans are in order of start, the outer ones first. If spans of a queue overlap
/// without nesting, the queue has several rows, numbered by `lane`.
struct TimelineRow {
    int rank = 0;
    std::string queue;
    int lane = 0;
    std::vector<RowSpan> spans;

    /// "world", "world (2)".
    std::string label() const;
};

/// Returns the rows by rank: a device's compute queue first, then its communicators by
/// name, then its copies. The report must outlive the rows. Waits are left out unless
/// `with_waits`: a picture shows them as gaps.
std::vector<TimelineRow> timeline_rows(const RunReport& report, bool with_waits = false);

/// Returns when the last span, message or rank of the report ended.
Picoseconds timeline_end(const RunReport& report);

}  // namespace lockstep

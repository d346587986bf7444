#pragma once

#include <string>
#include <vector>

#include "src/run/run_report.hpp"

namespace lockstep {

/// A span on its row; depth 0 is not inside another.
struct RowSpan {
    const TraceEvent* event;
    int depth;
};

/// A queue of a device with its spans, which nest: each pair is disjoint or one holds the
/// other. Spans are in order of start, the outer ones first. Where a queue has spans that
/// overlap without nesting, they are dealt over several rows, numbered by `lane`.
struct TimelineRow {
    int rank = 0;
    std::string queue;
    int lane = 0;
    std::vector<RowSpan> spans;

    /// "world", "world (2)".
    std::string label() const;
};

/// By rank; a device's compute queue first, then its communicators by name, then its
/// copies. Points into the report. Waits are left out unless they are asked for: a
/// picture shows them as gaps.
std::vector<TimelineRow> timeline_rows(const RunReport& report, bool with_waits = false);

/// When the last span, message or rank of the report ended.
Picoseconds timeline_end(const RunReport& report);

}  // namespace lockstep

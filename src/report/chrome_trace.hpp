#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/run/run_report.hpp"

namespace lockstep {

/// The runs as Chrome trace events (JSON, opens in Perfetto): a process a device and run,
/// a thread a queue, nested slices, flow arrows for messages, counters for memory by
/// category. Runs that were not traced leave nothing.
///
/// Times are microseconds in whole nanoseconds, rounded from picoseconds in integers.
/// Perfetto keeps nanoseconds and drops a slice that ends after the one around it; finer
/// digits would let its own rounding of start and duration make such slices. If a time is
/// no whole nanosecond the slice's arguments have the exact start_ps and end_ps.
std::string chrome_trace(const std::vector<std::pair<std::string, RunReport>>& runs);

/// Returns `value / unit` as an exact decimal number without zeros at the end. `value` is
/// not negative and `unit` is a power of ten.
std::string decimal_text(std::int64_t value, std::int64_t unit);

}  // namespace lockstep

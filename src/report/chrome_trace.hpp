#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/run/run_report.hpp"

namespace lockstep {

/// Returns the runs as Chrome trace events (JSON; Perfetto opens it). Each device of each
/// run is a process, and each queue a thread. Slices are nested, messages are flow
/// arrows, and memory has a counter for each category. Runs that were not traced give no
/// events.
///
/// Times are in microseconds with at most three decimals: they are rounded from
/// picoseconds to nanoseconds. Perfetto keeps nanoseconds, and drops a slice that ends
/// after the slice around it. If times had more decimals, Perfetto's own rounding of
/// start and duration would produce such slices. If a time is no whole nanosecond, the
/// slice's arguments have the exact start_ps and end_ps.
std::string chrome_trace(const std::vector<std::pair<std::string, RunReport>>& runs);

/// Returns `value / unit` as an exact decimal number without trailing zeros. `value` is
/// not negative and `unit` is a power of ten.
std::string decimal_text(std::int64_t value, std::int64_t unit);

}  // namespace lockstep

#pragma once

#include <string>
#include <vector>

namespace lockstep::programs {

/// Says why a run on real devices is stuck. Each rank's log of operations is repeated on
/// virtual devices, whose checker names the mistake. (See read_log; the log is empty if a
/// rank gave none.) If the calls match, says how far every rank has come. `stalled` is
/// the rank that noticed first. Returns whole lines, broken at `width` columns if
/// possible.
std::string stall_text(const std::vector<std::string>& logs, int stalled, int width);

/// Throws FaultError if programs have ended on real devices although their calls are
/// wrong. NCCL checks almost nothing across ranks: calls that differ may pass and leave
/// wrong values. `logs` are as above. If a log is not complete, does nothing.
void check_calls(const std::vector<std::string>& logs);

}  // namespace lockstep::programs

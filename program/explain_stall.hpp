#pragma once

#include <string>
#include <vector>

namespace lockstep::programs {

/// Returns the reason why a run on real devices is stuck. Each rank's log of operations
/// (see read_log; empty if the rank gave none) is repeated on virtual devices, whose
/// checker names the mistake. If a log is missing or incomplete, or if the calls match,
/// the text says instead how far every rank has come. `stalled` is the rank that noticed
/// first. Returns whole lines, broken at `width` columns if possible.
std::string stall_text(const std::vector<std::string>& logs, int stalled, int width);

/// Throws FaultError if programs have ended on real devices although their calls are
/// wrong. NCCL checks almost nothing across ranks: calls that differ may pass and leave
/// wrong values. `logs` are as above. If a log is not complete, does nothing.
void check_calls(const std::vector<std::string>& logs);

}  // namespace lockstep::programs

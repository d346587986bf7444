#pragma once

#include <string>
#include <vector>

namespace lockstep::programs {

/// Says why a run on real devices stands still: each rank's log of operations (see
/// read_log; empty if a rank gave none) is repeated on virtual devices, whose checker
/// names the mistake. If the calls match, it says where every rank stands. `stalled` is
/// the rank that noticed first. Whole lines, of at most `width` columns if they can be
/// broken.
std::string stall_text(const std::vector<std::string>& logs, int stalled, int width);

/// Throws the FaultError of programs that have ended on real devices, but whose calls are
/// wrong all the same: NCCL checks almost nothing across ranks, so that what differs may
/// go through and leave wrong values. `logs` are as above; if calls were forgotten,
/// nothing is said.
void check_calls(const std::vector<std::string>& logs);

}  // namespace lockstep::programs

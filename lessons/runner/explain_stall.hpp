#pragma once

#include <string>
#include <vector>

namespace lockstep::lessons {

/// Why a run on real devices stands still: each rank's log of operations (see read_log;
/// empty where a rank gave none) is repeated on virtual devices, whose checker names the
/// mistake. Where the calls match, where every rank stands. `stalled` is the rank that
/// noticed first. Whole lines of at most `width` columns where they can be broken.
std::string stall_text(const std::vector<std::string>& logs, int stalled, int width);

/// Throws the FaultError of programs that have ended on real devices, but whose calls are
/// wrong all the same: NCCL checks almost nothing across ranks, so that what differs may
/// go through and leave wrong values. `logs` are as above; where calls were forgotten,
/// nothing is said.
void check_calls(const std::vector<std::string>& logs);

}  // namespace lockstep::lessons

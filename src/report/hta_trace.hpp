#pragma once

#include <string>

#include "src/run/run_report.hpp"

namespace lockstep {

/// One rank's trace in the form that PyTorch's Holistic Trace Analysis reads: a folder of
/// them, a file a rank, is what its TraceAnalysis takes. Operations are kernels, each
/// queue a stream, with the launch on the host that HTA follows to a step; collectives
/// have the names of NCCL's kernels, by which HTA knows communication. A step begins
/// where a rank computes again after an update; HTA drops the last one, so an empty one
/// follows.
///
/// Times are whole numbers, since HTA cuts fractions off. They are microseconds where no
/// operation is shorter, else a microsecond of the file stands for a unit that the
/// shortest one fills, the same for all ranks: "lockstepUnitPicoseconds" has it. Shares
/// of time come out right whatever the unit.
std::string hta_trace(const RunReport& run, int rank);

}  // namespace lockstep

#pragma once

#include <string>

#include "src/run/run_report.hpp"

namespace lockstep {

/// Returns one rank's trace in the form that PyTorch's Holistic Trace Analysis (HTA)
/// reads. HTA's TraceAnalysis reads a folder with one file for each rank. Operations are
/// kernels, and each queue is a stream. Each kernel has a launch on the host; HTA finds
/// the kernel's step by this launch. Collectives have the names of NCCL's kernels; HTA
/// recognizes communication by these names. A step begins when a rank computes again
/// after an update. HTA drops the last step, so an empty step is added.
///
/// Times are whole numbers, since HTA cuts fractions off. They are microseconds if no
/// operation is shorter than a microsecond. Otherwise a microsecond of the file stands
/// for a shorter unit, chosen so that no operation is shorter than the unit. The unit is
/// the same for all ranks, and "lockstepUnitPicoseconds" gives it. Percentages of time
/// are right in any unit.
std::string hta_trace(const RunReport& run, int rank);

}  // namespace lockstep

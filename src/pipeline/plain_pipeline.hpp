#pragma once

#include <span>

#include "src/pipeline/pipeline.hpp"

namespace lockstep {

/// Executes a schedule as plainly as it can be said, before Pipeline (pipeline.hpp),
/// which executes any schedule and lets messages run beside what a device computes.
///
/// This device is stage line.rank() and holds one chunk, `stage`. It follows its
/// instructions one by one; messages in one group begin together, and it waits until they
/// are done. R and U are the caller's: gradients of the step are left in the stage's
/// parameters. Gives the sum of weight times loss, (1), on the last stage, elsewhere
/// none. The schedule has its messages (with_messages); throws UsageError if a
/// stage has several chunks, or for other numbers of stages and micro-batches.
Tensor run_plainly(Device& device, Communicator& line, const Schedule& schedule,
                   Module& stage, const PartBoundary& boundary, const Loss& loss,
                   std::span<const MicroBatch> micro_batches);

}  // namespace lockstep

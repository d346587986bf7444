#pragma once

#include <cstdint>

#include "src/comm/communicator.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

// Ranks may have batches of different sizes, and one may run out of batches before the
// others. It then goes on taking part, with nothing of its own, until all have run out;
// if it left, the others would wait for it for ever. PyTorch has torch.distributed's Join
// for that (its documentation, "Generic Join Context Manager").
//
//     while (const std::int64_t rows = rows_of_all(device, replicas, mine))
//         if (mine > 0)
//             train_step(device, model, loss, {{input, target, mine / rows}}, sync, …);
//         else
//             join_step(device, model, sync, optimizer);
//
// With the weights mine / rows each row of a step counts the same. Differs: Join divides
// by the number of ranks that joined late or not, so that a row of a small batch counts
// more.

/// Returns how many rows all ranks have in the step that begins, so 0 once all have run
/// out. One all-reduce of one number, for which the host waits. Throws UsageError in a
/// run of shapes only.
std::int64_t rows_of_all(Device& device, Communicator& replicas, std::int64_t mine,
                         SourceLine at = SourceLine::here());

/// A step of a rank that has no rows in it: its terms of the gradients are zeros. Sends
/// what a train_step sends. The optimizer steps as on all ranks.
void join_step(Device& device, Module& model, GradientSync& sync, Optimizer& optimizer);

}  // namespace lockstep

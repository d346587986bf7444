#pragma once

#include <cstdint>

#include "src/comm/communicator.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

// Ranks may have batches of different sizes, and one rank may run out of batches before
// the other ranks. Then this rank takes part without data until all ranks have run out.
// If it left, the other ranks would wait for it for ever. In PyTorch, torch.distributed's
// Join does this (its documentation, "Generic Join Context Manager").
//
//     while (const std::int64_t rows = rows_of_all(device, replicas, mine)) {
//         const double weight = static_cast<double>(mine) / rows;
//         if (mine > 0)
//             train_step(device, model, loss, {{input, target, weight}}, sync, …);
//         else
//             join_step(device, model, sync, optimizer);
//     }
//
// With these weights each row of a step counts the same. Differs: PyTorch's Join divides
// by a number of ranks, so that a row of a small batch counts more.

/// Returns the number of rows that all ranks together have in the step that begins; 0
/// after all ranks have run out. Costs one all-reduce of one number, and the host waits
/// for it. Throws UsageError in a run of shapes only.
std::int64_t rows_of_all(Device& device, Communicator& replicas, std::int64_t mine,
                         SourceLine at = SourceLine::here());

/// Runs a step of a rank without rows: its terms of the gradients are zeros. The rank
/// takes part in the strategy's messages, and runs its optimizer, like all ranks.
///
/// If the model sends messages in forward or backward, as GlobalBatchNorm does, pass an
/// input of 0 rows. This input runs forward and backward, like a micro-batch on the other
/// ranks. (PyTorch's Join does not support such models.)
void join_step(Device& device, Module& model, GradientSync& sync, Optimizer& optimizer,
               const Tensor& no_rows = {});

}  // namespace lockstep

#pragma once

#include <cstdint>

#include "src/comm/communicator.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

// Ranks may have batches of different sizes, and one rank may run out of batches before
// the others. It then keeps taking part, without data of its own, until all have run out.
// If it left, the others would wait for it for ever. PyTorch has torch.distributed's Join
// for this (its documentation, "Generic Join Context Manager").
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

/// Returns how many rows all ranks have together in the step that begins: 0 after all
/// have run out. One all-reduce of one number; the host waits for it. Throws UsageError
/// in a run of shapes only.
std::int64_t rows_of_all(Device& device, Communicator& replicas, std::int64_t mine,
                         SourceLine at = SourceLine::here());

/// Runs a step of a rank that has no rows: its terms of the gradients are zeros. The rank
/// takes part in what the strategy sends, and its optimizer steps as on all ranks.
///
/// A model may send messages in forward or backward, as GlobalBatchNorm does. Then give
/// an input of 0 rows: it runs forward and backward, like a micro-batch on the other
/// ranks. (PyTorch's Join does not support such models.)
void join_step(Device& device, Module& model, GradientSync& sync, Optimizer& optimizer,
               const Tensor& no_rows = {});

}  // namespace lockstep

#pragma once

#include <span>

#include "src/comm/communicator.hpp"
#include "src/parallel/gradient_accumulation.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

/// Data parallelism: every rank holds the whole model and a share of the batch. The
/// gradients of the shares are summed over the ranks, so that all ranks take the same
/// step. Gradient accumulation sums over time, data parallelism over devices.
///
/// `mine` are this rank's micro-batches. The weights of all ranks' micro-batches decide
/// which mean you get: for the mean over all samples each weight is B_i / B, whatever the
/// sizes of the shares. Leaves the same summed gradients, bit for bit, in the model of
/// every rank, and returns this rank's share of the loss, (1). Costs one all-reduce per
/// parameter: each rank sends 2(n-1)/n of the gradients' bytes. See Li et al. 2020,
/// PyTorch Distributed (2006.15704), section 2.
Tensor data_parallel_gradients(Device& device, Communicator& replicas, Module& model,
                               const Loss& loss, std::span<const MicroBatch> mine);

}  // namespace lockstep

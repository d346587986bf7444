#pragma once

#include <span>

#include "src/comm/communicator.hpp"
#include "src/parallel/gradient_accumulation.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep {

/// Data parallelism: every rank holds the whole model and a share of the batch; the
/// gradients of the shares are added up over the ranks, so that all take the same step.
/// Accumulation adds up in time what this adds up in space.
///
/// `mine` are this rank's micro-batches, whose weights, over all ranks,
/// make the mean that is wanted: B_i / B each for the mean over all
/// samples, whatever the shares' sizes. Leaves the summed gradients in the
/// model of every rank, bit for bit the same, and gives this rank's share
/// of the loss, (1). One all-reduce a parameter: each rank sends 2(n-1)/n
/// of the gradients' bytes. Li et al. 2020, PyTorch Distributed
/// (2006.15704), section 2.
Tensor data_parallel_gradients(Device& device, Communicator& replicas, Module& model,
                               const Loss& loss, std::span<const MicroBatch> mine);

}  // namespace lockstep

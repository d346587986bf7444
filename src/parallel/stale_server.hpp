#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/nn/optimizer.hpp"

namespace lockstep {

/// A gradient that an asynchronous server has applied.
struct StaleUpdate {
    int worker = 0;          ///< the index of its pair
    std::int64_t clock = 0;  ///< which of the worker's gradients, from 0
    /// The age, in clocks, of the values that it was computed with. They contain all
    /// gradients of all workers before clock - staleness.
    std::int64_t staleness = 0;
    /// Gradients of other workers that were applied in between: after the worker had got
    /// its values, and before the step that this gradient is part of.
    std::int64_t missed = 0;
};

/// Returns communicators of the server with each other rank, in rank order; the server is
/// rank 0 in each. A worker has only its own, the others are null. Every rank of the
/// group calls this.
std::vector<std::unique_ptr<Communicator>> pairs_with_server(Communicator& group,
                                                             int server = 0);

/// An asynchronous parameter server with bounded staleness (Ho et al. 2013, More
/// Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, NIPS,
/// section 3). It takes gradients in order of arrival, and answers a worker with the
/// current values. A worker that is more than `bound` gradients ahead of the slowest one
/// waits for its answer until the slowest has come closer.
///
/// With bound 0 it is the synchronous server (serve_parameters), bit for bit. If no
/// worker ever reaches the bound, no worker waits: Downpour SGD (Dean et al. 2012, NIPS,
/// section 4.1).
///
/// Gradients that came since the last answer are summed in rank order, and make one step
/// of the optimizer when a worker is answered: no worker reads values in between. Workers
/// are ServedWorkers, each over its own pair: S bytes up and S down for each gradient.
/// The server holds one gradient of each worker, n S bytes, and its own.
///
/// Runs for `steps` gradients of each worker, and returns all of them in the order in
/// which they were applied. Virtual time decides which worker comes first, the same in
/// every run. On GPUs events decide, and runs differ. There each pair's receive is a
/// kernel of NCCL that waits on the server's GPU, so many workers leave the optimizer
/// less room. Throws UsageError if the optimizer has other parameters.
std::vector<StaleUpdate> serve_stale(
    Device& device, const std::vector<std::unique_ptr<Communicator>>& pairs,
    const std::vector<Parameter*>& parameters, Optimizer& optimizer, std::int64_t steps,
    std::int64_t bound);

}  // namespace lockstep

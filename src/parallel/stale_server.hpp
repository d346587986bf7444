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
    std::int64_t clock = 0;  ///< the number of the worker's gradient, from 0
    /// The age, in clocks, of the values with which this gradient was computed. These
    /// values contain all workers' gradients before clock - staleness.
    std::int64_t staleness = 0;
    /// The number of other workers' gradients that were applied after the worker got its
    /// values and before the step with this gradient.
    std::int64_t missed = 0;
};

/// Returns a communicator of the server and each other rank, in rank order; the server is
/// rank 0 in each. On a worker, only its own communicator is set; the others are null.
/// Every rank of the group calls this.
std::vector<std::unique_ptr<Communicator>> pairs_with_server(Communicator& group,
                                                             int server = 0);

/// An asynchronous parameter server with bounded staleness (Ho et al. 2013, More
/// Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, NIPS,
/// section 3). It accepts gradients in order of arrival, and answers a worker with the
/// current values. If a worker is more than `bound` gradients ahead of the slowest
/// worker, it waits for its answer until the slowest worker has come closer.
///
/// With bound 0 the values are those of the synchronous server (serve_parameters), bit
/// for bit. If no worker ever reaches the bound, no worker waits, as in Downpour SGD
/// (Dean et al. 2012, NIPS, section 4.1).
///
/// To answer a worker, the server sums the gradients that came since the last answer, in
/// rank order, and runs one step of the optimizer; no worker reads values in between.
/// Workers are ServedWorkers, each over its own pair: S bytes up and S bytes down for
/// each gradient. The server holds one gradient of each worker (n S bytes), and its own.
///
/// Runs until each worker has sent `steps` gradients. Returns these gradients in the
/// order of their application. On virtual devices, virtual time decides which worker
/// comes first, the same in every run. On GPUs events decide, and runs differ. There each
/// pair's receive is an NCCL kernel that waits on the server's GPU: many workers leave
/// less of it to the optimizer. Throws UsageError if the optimizer has other parameters.
std::vector<StaleUpdate> serve_stale(
    Device& device, const std::vector<std::unique_ptr<Communicator>>& pairs,
    const std::vector<Parameter*>& parameters, Optimizer& optimizer, std::int64_t steps,
    std::int64_t bound);

}  // namespace lockstep

#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/nn/optimizer.hpp"

namespace lockstep {

/// A gradient that an asynchronous server has applied.
struct StaleUpdate {
    int worker = 0;          ///< the index of the worker's pair
    std::int64_t clock = 0;  ///< the number of the worker's gradient, from 0
    /// The age, in clocks, of the values with which this gradient was computed. These
    /// values contain each worker's gradients with numbers below clock - staleness.
    std::int64_t staleness = 0;
    /// The number of other workers' gradients that were applied after the worker got its
    /// values and before the step with this gradient.
    std::int64_t missed = 0;
};

/// Returns, for each worker in rank order, a communicator of the server (rank 0) and this
/// worker (rank 1). On a worker, the communicators of other workers are null. Every rank
/// of the group calls this.
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
/// Each worker is a ServedWorker of its pair: it sends S bytes and receives S bytes for
/// each gradient. The server holds one gradient of each worker (n S bytes), and the sum.
///
/// Runs until each worker has sent `steps` gradients. Returns these gradients in the
/// order of their application. On virtual devices, virtual time decides which gradient
/// arrives first, so the order is the same in every run. On GPUs, runs differ. There the
/// receive of each pair is an NCCL kernel that occupies a part of the server's GPU while
/// it waits; with many workers, the optimizer gets less of the GPU. Throws UsageError if
/// the optimizer has other parameters than `parameters`.
std::vector<StaleUpdate> serve_stale(
    Device& device, const std::vector<std::unique_ptr<Communicator>>& pairs,
    const std::vector<Parameter*>& parameters, Optimizer& optimizer, std::int64_t steps,
    std::int64_t bound);

}  // namespace lockstep

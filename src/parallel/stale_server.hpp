#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "src/comm/communicator.hpp"
#include "src/nn/optimizer.hpp"

namespace lockstep {

/// A gradient that an asynchronous server has taken in.
struct StaleUpdate {
    int worker = 0;          ///< its place among the pairs
    std::int64_t clock = 0;  ///< which of the worker's gradients, from 0
    /// How many clocks the values that it was computed with lay behind: they had all
    /// gradients of all workers before clock - staleness.
    std::int64_t staleness = 0;
    /// Gradients of other workers that made steps between: after the worker had got its
    /// values, and before the step that this one is part of.
    std::int64_t missed = 0;
};

/// Returns communicators of the server with each other rank, in the order of ranks: the
/// server is rank 0 in each. A worker has its own alone, the others are null. Every rank
/// of the group calls it.
std::vector<std::unique_ptr<Communicator>> pairs_with_server(Communicator& group,
                                                             int server = 0);

/// An asynchronous parameter server with bounded staleness (Ho et al. 2013, More
/// Effective Distributed ML via a Stale Synchronous Parallel Parameter Server, NIPS,
/// section 3). It takes in gradients in the order in which they come, and answers a
/// worker with the values by then, unless that worker is more than `bound` gradients
/// ahead of the slowest one: then the worker waits until the slowest has come nearer.
///
/// Bound 0 is the synchronous server (serve_parameters), bit for bit. With a bound that
/// nobody reaches, nobody waits: Downpour SGD (Dean et al. 2012, NIPS, section 4.1).
///
/// Gradients that came since the last answer are added up in the order of ranks, and make
/// one step of the optimizer when somebody is answered: nobody reads values in between.
/// Workers are ServedWorkers, each over its own pair: S bytes up and S down for each
/// gradient. The server holds a gradient of each worker, n S bytes besides its own.
///
/// Runs for `steps` gradients of each worker, and returns all of them in the order in
/// which they were taken in. Which worker comes first is decided by virtual time, the
/// same in every run. On GPUs the events decide, and runs differ; there each pair's
/// receive is a kernel of NCCL that waits on the server's GPU, so that many workers leave
/// the optimizer less room. Throws UsageError if the optimizer has other parameters.
std::vector<StaleUpdate> serve_stale(
    Device& device, const std::vector<std::unique_ptr<Communicator>>& pairs,
    const std::vector<Parameter*>& parameters, Optimizer& optimizer, std::int64_t steps,
    std::int64_t bound);

}  // namespace lockstep

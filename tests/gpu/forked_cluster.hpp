#pragma once

#include <memory>
#include <string>

#include "src/comm/rank.hpp"

namespace lockstep::test {

struct ForkedOptions {
    bool trace = false;
    double timeout_seconds = 60;
    /// Several ranks may share one GPU. Two ranks share the only GPU if SHARE_GPU is 1.
    bool share_gpu = false;
    bool has_host = true;
};

/// A cluster of real processes. run() forks one process for each rank. Each process opens
/// its GPU, meets the other ranks, runs the program and sends its report back. The
/// forking process never uses CUDA, because CUDA does not survive a fork.
///
/// The first failure of any rank is thrown as std::runtime_error, with the text that rank
/// 0 would print. A stalled rank is explained as on the command line.
std::unique_ptr<Cluster> make_forked_cluster(int ranks, ForkedOptions options = {});

/// Returns how many GPUs this machine has. A separate process asks CUDA, once.
int count_gpus();

/// Returns whether each rank has a GPU, or two ranks may share the only GPU.
bool has_gpus_for(int ranks);
/// Returns why a test with this number of ranks is skipped.
std::string lacking_gpus(int ranks);

/// Returns how long a rank may show no progress before it counts as stalled:
/// STALL_SECONDS or, if not set, a time that GPUs and NCCL never need.
double stall_seconds();

}  // namespace lockstep::test

#pragma once

#include <memory>
#include <string>

#include "src/comm/rank.hpp"

namespace lockstep::test {

struct ForkedOptions {
    bool trace = false;
    double timeout_seconds = 60;
    /// Several ranks may take one GPU. Two do if there is only one, and SHARE_GPU is 1.
    bool share_gpu = false;
    bool has_host = true;
};

/// A cluster of real processes: run() forks one for each rank, which opens its GPU, meets
/// the others, runs the program and sends its report back. This process itself never
/// touches CUDA, which would not survive the fork.
///
/// The first failure of any rank is thrown as std::runtime_error with the text that rank
/// 0 would print; a rank that stands still is explained as the command line does it.
std::unique_ptr<Cluster> make_forked_cluster(int ranks, ForkedOptions options = {});

/// GPUs that this machine has, asked in a process of its own, once.
int count_gpus();

/// True if that many ranks have a GPU each, or are two that may share the only one.
bool has_gpus_for(int ranks);
/// Says why a test of that many ranks is skipped.
std::string lacking_gpus(int ranks);

/// How long a rank stands still before it counts as stalled: longer than what GPUs and
/// NCCL do without a sign, unless STALL_SECONDS says otherwise.
double stall_seconds();

}  // namespace lockstep::test

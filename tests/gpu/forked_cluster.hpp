#pragma once

#include <memory>

#include "src/comm/rank.hpp"

namespace lockstep::test {

struct ForkedOptions {
    bool trace = false;
    double timeout_seconds = 30;
    /// Several ranks may take one GPU.
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

/// GPUs that this machine has, asked in a process of its own.
int count_gpus();

}  // namespace lockstep::test

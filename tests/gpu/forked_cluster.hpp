#pragma once

#include <memory>
#include <string>

#include "src/comm/rank.hpp"

namespace lockstep::test {

struct ForkedOptions {
    bool trace = false;
    double timeout_seconds = 60;
    /// Several ranks may share one GPU. Two ranks do if there is only one and SHARE_GPU
    /// is 1.
    bool share_gpu = false;
    bool has_host = true;
};

/// A cluster of real processes. run() forks one process for each rank, which opens its
/// GPU, meets the others, runs the program and sends its report back. This process itself
/// never uses CUDA, because CUDA does not survive a fork.
///
/// The first failure of any rank is thrown as std::runtime_error, with the text that rank
/// 0 would print. A stalled rank is explained as on the command line.
std::unique_ptr<Cluster> make_forked_cluster(int ranks, ForkedOptions options = {});

/// Returns the number of this machine's GPUs; a separate process asks, once.
int count_gpus();

/// Returns whether each rank has a GPU, or there are two ranks that may share the only
/// one.
bool has_gpus_for(int ranks);
/// Returns why a test of that many ranks is skipped.
std::string lacking_gpus(int ranks);

/// Returns how long a rank may make no progress before it counts as stalled: longer than
/// GPUs and NCCL may take without a sign, unless STALL_SECONDS says otherwise.
double stall_seconds();

}  // namespace lockstep::test

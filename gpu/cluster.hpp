#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"

namespace lockstep::gpu {

class Control;

struct DeviceOptions {
    /// Matrix products of f32 in TF32: faster on tensor cores, with 10 bits of mantissa.
    bool tf32 = false;
    /// Asked again and again while the host waits for the GPU; may throw to end the wait.
    std::function<void()> while_waiting;
};

/// A device whose numbers come from this process's GPU: its memory, a stream of its own,
/// cuBLAS and our kernels. Several may share the GPU (`--backend cuda`). Throws
/// MissingError where this build or this machine has none.
std::unique_ptr<Device> make_device(int index, DeviceMonitor& monitor,
                                    DeviceOptions options = {});

struct ClusterOptions {
    int ranks = 1;
    bool trace = false;
    bool tf32 = false;
    /// The other processes of the run; none where this one is alone. Must outlive the
    /// cluster. A cluster of fewer ranks than processes runs on the first ones.
    Control* control = nullptr;
};

/// One process a device, NCCL between them (`--backend nccl`). Every process of the run
/// makes the same clusters and calls run() in the same order; every one gets the report
/// of all ranks, with measured times. Throws MissingError where this build or this
/// machine cannot.
std::unique_ptr<Cluster> make_cluster(const ClusterOptions& options);

}  // namespace lockstep::gpu

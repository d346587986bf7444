#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/device/local_device.hpp"

namespace lockstep::gpu {

class Control;

struct DeviceOptions {
    /// Matrix products of f32 in TF32: faster on tensor cores, with 10 mantissa bits.
    bool tf32 = false;
    /// Waits for each operation and checks it, so the operation that stops the GPU is the
    /// one that throws. Slow.
    bool sync = false;
    /// Called repeatedly while the host waits for the GPU; may throw to end the wait.
    std::function<void()> while_waiting;
};

/// Makes a device that computes on this process's GPU, with its own memory and stream,
/// with cuBLAS and our kernels. Several devices may share the GPU (`--backend cuda`).
/// Throws MissingError if this build or this machine lacks a part that the device needs.
std::unique_ptr<lockstep::Device> make_device(int index, DeviceMonitor& monitor,
                                              DeviceOptions options = {});

struct ProcessOptions {
    /// The control line to the other processes of the run; null if there is only this
    /// process. Must outlive the Process.
    Control* control = nullptr;
    bool tf32 = false;  ///< as in DeviceOptions
    bool sync = false;  ///< as in DeviceOptions
    /// Lets processes of one machine share one GPU, with NCCL over sockets. This is slow,
    /// and only for trying NCCL's real calls.
    bool share_gpu = false;
    /// Makes the host device that Device::host() returns. If empty, there is none.
    HostFactory make_host;
    /// Called on a process when its program throws, before NCCL's communicators are
    /// aborted. This function must call Control::fail, so that the other processes stop
    /// waiting.
    std::function<void()> on_failure;
    /// Called on every process at the end of each run, with the operation logs (see
    /// read_log) of all processes. May throw to end the run as failed.
    std::function<void(const std::vector<std::string>& logs)> examine;
};

/// This process, in a run with one process for each GPU (`--backend nccl`): its GPU, and
/// its NCCL communicators, which are made once for all clusters. Every process must make
/// the same clusters and run the same programs on these clusters, in the same order.
class Process {
  public:
    /// All processes must call this. Throws MissingError if this build or this machine
    /// lacks a part that the process needs.
    static std::unique_ptr<Process> open(const ProcessOptions& options);

    virtual ~Process() = default;
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    /// Makes a cluster of the first `ranks` processes. The cluster's run() runs the
    /// program on these processes and gives every process the report of all ranks, with
    /// measured times. Traffic is counted by the simulator's formulas. A rank's exception
    /// is thrown only on that rank's process; see ProcessOptions::on_failure.
    virtual std::unique_ptr<Cluster> make_cluster(int ranks, bool trace) = 0;

  protected:
    Process() = default;
};

}  // namespace lockstep::gpu

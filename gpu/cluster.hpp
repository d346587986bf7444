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
    /// Matrix products of f32 in TF32: faster on tensor cores, with 10 bits of mantissa.
    bool tf32 = false;
    /// Waits for each operation and checks it, so that one that makes the GPU stop is the
    /// one that throws; slow.
    bool sync = false;
    /// Asked again and again while the host waits for the GPU; may throw to end the wait.
    std::function<void()> while_waiting;
};

/// A device whose numbers come from this process's GPU: its memory, a stream of its own,
/// cuBLAS and our kernels. Several may share the GPU (`--backend cuda`). Throws
/// MissingError where this build or this machine has none.
std::unique_ptr<lockstep::Device> make_device(int index, DeviceMonitor& monitor,
                                              DeviceOptions options = {});

struct ProcessOptions {
    /// The line to the other processes of the run; none where this one is alone. Outlives
    /// the process object.
    Control* control = nullptr;
    bool tf32 = false;  ///< as DeviceOptions says, and so is `sync`
    bool sync = false;
    /// Lets processes of one machine take one GPU together, NCCL going over sockets:
    /// slow, and for trying the real calls only.
    bool share_gpu = false;
    /// Makes what Device::host() gives; without it there is none.
    HostFactory make_host;
    /// Called in the handler of what a program threw, on its process, before NCCL's part
    /// of the run is given up: the caller tells the others, by Control::fail, that they
    /// need not wait.
    std::function<void()> on_failure;
    /// Called on every process at the end of each run, with the logs of operations (see
    /// read_log) of all processes; may throw to end the run as failed.
    std::function<void(const std::vector<std::string>& logs)> examine;
};

/// This process among those of a run, one a GPU (`--backend nccl`): its GPU, and NCCL's
/// communicators to the others, made once for all clusters. Every process makes the same
/// clusters and runs the same programs on them, in the same order.
class Process {
  public:
    /// All processes call it. Throws MissingError where this build or this machine has
    /// not what it takes.
    static std::unique_ptr<Process> open(const ProcessOptions& options);

    virtual ~Process() = default;
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;

    /// A cluster of the first `ranks` processes. Its run() runs the program on these, and
    /// gives every process the report of all ranks, with measured times; the traffic is
    /// counted by the formulas that the simulator uses. What a rank's program throws is
    /// thrown on its process alone; see ProcessOptions::on_failure.
    virtual std::unique_ptr<Cluster> make_cluster(int ranks, bool trace) = 0;

  protected:
    Process() = default;
};

}  // namespace lockstep::gpu

#pragma once

#include <deque>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include "gpu/channel.hpp"
#include "gpu/check.hpp"
#include "gpu/device.hpp"
#include "gpu/host.hpp"
#include "gpu/measured_device.hpp"
#include "gpu/nccl.hpp"
#include "gpu/spans.hpp"
#include "gpu/watch.hpp"
#include "src/comm/operation_log.hpp"

namespace lockstep::gpu {

/// What a rank's device and communicators share while its program runs.
struct RankRun {
    RankRun(int index, bool trace, const DeviceOptions& options, NcclFamily& family,
            const std::vector<std::string>& host_names, OperationLog& calls,
            const HostFactory& make_host);
    ~RankRun();
    RankRun(const RankRun&) = delete;
    RankRun& operator=(const RankRun&) = delete;

    /// Called while the host waits for the GPU: throws as NcclFamily::check does, and
    /// shows the other processes what the GPU does.
    void while_waiting() {
        nccl.check();
        monitor.show_progress();
    }
    /// Waits on the host until all launched work is done. Then destroys the communicators
    /// that the program made, in the order in which all ranks made them.
    void finish();

    /// Calls `use`, which uses the GPU. Errors name the rank and `doing()`.
    template <typename Doing, typename Use>
    auto naming(const Doing& doing, const Use& use) const {
        return gpu::naming(rank, sync, doing, use);
    }

    bool same_node(int a, int b) const {
        return hosts[a] == hosts[static_cast<std::size_t>(b)];
    }

    int rank;
    bool sync;  ///< the host waits for each operation
    NcclFamily& nccl;
    const std::vector<std::string>& hosts;  ///< by rank
    OperationLog& log;
    Spans spans;
    MeasuredDevice monitor;
    Device device;
    PinnedPool pinned;
    MeasuredHost host_monitor;
    std::unique_ptr<lockstep::Device> host;  ///< null if no factory was given
    RunHandle handle;
    HostCopies copies;
    std::exception_ptr mistake;  ///< an error in a destructor, which cannot throw
    std::deque<Channel>
        channels;  ///< of every communicator, in the order of their making
};

}  // namespace lockstep::gpu

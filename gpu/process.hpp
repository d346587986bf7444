#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "gpu/cluster.hpp"
#include "gpu/launcher/control.hpp"
#include "gpu/nccl.hpp"
#include "gpu/watch.hpp"
#include "src/comm/operation_log.hpp"

namespace lockstep::gpu {

/// While this object lives, the run fails if this process shows no progress for too long.
class Watching {
  public:
    explicit Watching(Control* control) : control_(control) {
        if (control_ != nullptr) control_->begin_watching();
    }
    ~Watching() {
        if (control_ != nullptr) control_->end_watching();
    }
    Watching(const Watching&) = delete;
    Watching& operator=(const Watching&) = delete;

  private:
    Control* control_;
};

/// Implements Process; see Process::open.
class GpuProcess final : public Process {
  public:
    explicit GpuProcess(const ProcessOptions& options);
    ~GpuProcess() override;

    std::unique_ptr<Cluster> make_cluster(int ranks, bool trace) override;

    Control* control() const { return options_.control; }
    const Watch& watch() const { return watch_; }
    int rank() const { return control() == nullptr ? 0 : control()->rank(); }
    int size() const { return control() == nullptr ? 1 : control()->size(); }
    /// Returns a text that identifies the machine of each rank, by rank.
    const std::vector<std::string>& hosts() const { return hosts_; }
    DeviceOptions device_options() const { return {options_.tf32, options_.sync, {}}; }
    const HostFactory& make_host() const { return options_.make_host; }

    NcclFamily& nccl() { return family_; }
    /// The communicator of the first `ranks` processes; an empty handle on the other
    /// processes. All processes must call this at the same time.
    NcclHandle& world(int ranks);
    void tell_failure() {
        if (options_.on_failure) options_.on_failure();
    }
    void examine(const std::vector<std::string>& logs) {
        if (options_.examine) options_.examine(logs);
    }
    /// Sets the log that describe() reports while a program runs; null for none.
    void set_log(const OperationLog* log);

  private:
    std::string describe();
    void take_gpu();
    NcclHandle meet();

    ProcessOptions options_;
    Watch watch_;
    std::vector<std::string> hosts_;
    NcclFamily family_;
    std::map<int, NcclHandle> worlds_;  ///< by size
    std::mutex log_mutex_;
    const OperationLog* log_ = nullptr;
};

}  // namespace lockstep::gpu

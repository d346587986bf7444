#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "gpu/channel.hpp"
#include "gpu/spans.hpp"
#include "gpu/watch.hpp"
#include "src/device/ledger.hpp"
#include "src/device/local_device.hpp"
#include "src/device/monitor.hpp"

namespace lockstep::gpu {

/// Pinned host memory, which the GPU reads and writes directly. When CUDA allocates or
/// frees such memory, it may wait for all work of the GPU. Then a rank could wait for
/// another rank forever. So freed blocks are kept for later requests of the same size.
///
/// Throws GpuError if there is no more memory.
class PinnedPool final : public PinnedPages {
  public:
    PinnedPool() = default;
    ~PinnedPool() override;
    PinnedPool(const PinnedPool&) = delete;
    PinnedPool& operator=(const PinnedPool&) = delete;

    std::byte* allocate(std::int64_t bytes) override;
    void free(std::byte* data) noexcept override;

  private:
    struct Block {
        std::int64_t bytes;
        bool is_used;
    };

    std::map<std::byte*, Block> blocks_;
};

/// Measures a rank's host: its time by the host's clock, its ledger, its counters. Calls
/// return when their computation is done.
class MeasuredHost final : public DeviceMonitor {
  public:
    MeasuredHost(int rank, Spans& spans, const Watch& watch)
        : rank_(rank), spans_(spans), watch_(watch), ledger_(0) {}

    void execute(const DeviceOperation& operation, FunctionRef<void()> numbers) override;
    void copy(CopyDirection direction, const Tensor& tensor, SourceLine at,
              FunctionRef<void()> move) override;
    void allocated(const Storage& storage) override;
    void freed(const Storage& storage) noexcept override;
    void phase_began(Phase phase, int micro_batch, SourceLine at) override;
    void phase_ended() noexcept override;
    bool has_numbers() const override { return true; }

    /// Counts bytes that the device has copied.
    void copied(CopyDirection direction, std::int64_t bytes);
    HostReport report() const;

  private:
    struct OpenPhase {
        TraceEvent label;
        Spans::HostTime start;
    };

    TraceEvent label(const char* name, const char* kind, SourceLine at) const;

    int rank_;
    Spans& spans_;
    Watch watch_;
    Ledger ledger_;
    HostReport counts_;
    std::vector<OpenPhase> phases_;
};

/// The copies between a rank's device and its host: a queue for each direction.
class HostCopies {
  public:
    explicit HostCopies(RankRun& run) : run_(run) {}

    /// See Device::start_copy.
    Work start(CopyDirection direction, const Tensor& destination, const Tensor& source,
               SourceLine at);

    std::array<LaunchQueue, 2>& queues() { return queues_; }

  private:
    Work launch(CopyDirection direction, const Tensor& destination, const Tensor& source,
                SourceLine at);

    RankRun& run_;
    std::array<LaunchQueue, 2> queues_;  ///< by direction
};

}  // namespace lockstep::gpu

#pragma once

#include <chrono>
#include <deque>
#include <optional>
#include <vector>

#include "gpu/spans.hpp"
#include "gpu/watch.hpp"
#include "src/device/ledger.hpp"
#include "src/device/monitor.hpp"

namespace lockstep::gpu {

class HostCopies;

/// Measures a real device as sim::VirtualDevice measures a virtual device: its time (by
/// events), its ledger, its counters. It does no arithmetic.
class MeasuredDevice final : public DeviceMonitor {
  public:
    /// `sync`: see named().
    MeasuredDevice(int rank, bool sync, Spans& spans, const Watch& watch)
        : rank_(rank), sync_(sync), spans_(spans), watch_(watch), ledger_(0) {}

    /// Sets the stream and the copies of the device that reports to this object. Call it
    /// before the device's first operation.
    void attach(Stream& stream, HostCopies& copies) {
        stream_ = &stream;
        copies_ = &copies;
    }

    void execute(const DeviceOperation& operation, FunctionRef<void()> numbers) override;
    void copy(CopyDirection direction, const Tensor& tensor, SourceLine at,
              FunctionRef<void()> move) override;
    Work start_copy(CopyDirection direction, const Tensor& destination,
                    const Tensor& source, SourceLine at) override;
    void allocated(const Storage& storage) override;
    void freed(const Storage& storage) noexcept override;
    void phase_began(Phase phase, int micro_batch, SourceLine at) override;
    void phase_ended() noexcept override;
    bool has_numbers() const override { return true; }
    Picoseconds now() const override;
    void sleep_until(Picoseconds time, SourceLine at) override;

    /// Called while the host waits: shows the other processes what the device has done.
    void show_progress();

    Stream& stream() const { return *stream_; }
    int micro_batch() const { return phases_.empty() ? -1 : phases_.back().micro_batch; }
    const MemoryReport& memory() const { return ledger_.report(); }
    std::int64_t flops() const { return flops_; }

  private:
    struct OpenPhase {
        int micro_batch;
        std::optional<std::size_t> span;
    };

    void place_milestone(const DeviceOperation& operation);
    void measure(Spans::Kind kind, TraceEvent label, FunctionRef<void()> work);

    std::chrono::steady_clock::time_point made_ = std::chrono::steady_clock::now();
    int rank_;
    bool sync_;
    Spans& spans_;
    Watch watch_;
    Stream* stream_ = nullptr;
    HostCopies* copies_ = nullptr;
    Ledger ledger_;
    std::int64_t flops_ = 0;
    std::vector<OpenPhase> phases_;
    double since_milestone_ = 0;    ///< flops and bytes
    std::deque<Event> milestones_;  ///< not yet reached by the device
    std::vector<Event> free_milestones_;
};

}  // namespace lockstep::gpu

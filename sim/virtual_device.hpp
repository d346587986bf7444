#pragma once

#include <algorithm>
#include <array>

#include "sim/host_memory.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"
#include "sim/watcher.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/device/ledger.hpp"
#include "src/device/monitor.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::sim {

/// The virtual side of a device: its clock, its ledger, its counters. It does no
/// arithmetic.
///
/// The compute queue runs operations in program order. Its clock, now(), is the time when
/// all operations issued so far are done. A communication begins at that time or later. A
/// wait for a communication moves the clock to the communication's end.
///
/// A host is a VirtualDevice, too. The program runs on the host: computations there and
/// the program's waits move the host's clock. An operation that the program then issues
/// to the device begins no earlier than the host's clock.
class VirtualDevice final : public DeviceMonitor {
  public:
    struct Host {};

    VirtualDevice(Engine& engine, int rank, const ClusterOptions& options,
                  Scheduler& scheduler, Trace& trace, const Watchers& check, Host);
    /// Makes the device that belongs to `host`.
    VirtualDevice(Engine& engine, int rank, const ClusterOptions& options,
                  Scheduler& scheduler, Trace& trace, const Watchers& check,
                  VirtualDevice& host);

    void execute(const DeviceOperation& operation, FunctionRef<void()> numbers) override;
    void copy(CopyDirection direction, const Tensor& tensor, SourceLine at,
              FunctionRef<void()> move) override;
    Work start_copy(CopyDirection direction, const Tensor& destination,
                    const Tensor& source, SourceLine at) override;
    void peeked(const Tensor& tensor, SourceLine at) override;
    void allocated(const Storage& storage) override;
    void freed(const Storage& storage) noexcept override;
    void phase_began(Phase phase, int micro_batch, SourceLine at) override;
    void phase_ended() noexcept override;
    Moment moment() const override {
        return {name_of(phase()), micro_batch(), steps_, now()};
    }
    bool has_numbers() const override { return numbers_; }
    Picoseconds now() const override { return std::max(now_, program_); }
    void sleep_until(Picoseconds time, SourceLine at) override;

    /// Sets the device that belongs to this host. The device's program runs on this host.
    void serve(VirtualDevice& device) { served_ = &device; }
    /// The device's next operation begins no earlier than the host's clock.
    void follow_host(SourceLine at) {
        if (program_ > now_) wait_for_host(at);
    }
    /// Later operations begin at `end` or later.
    void wait_until(Picoseconds end);
    /// Records that a communicator's queue was busy. The rank ends no earlier than `end`.
    void communicated(Picoseconds start, Picoseconds end, SourceLine at);
    /// Records that a queue of copies was busy.
    void copied(Picoseconds start, Picoseconds end, SourceLine at);
    /// A host copies `bytes` into or out of a pinned buffer.
    void stage(std::int64_t bytes, SourceLine at);

    Phase phase() const { return phases_.empty() ? Phase::none : phases_.back().phase; }
    /// Returns the device's current phase or, between phases, its latest phase.
    Phase latest_phase() const { return phases_.empty() ? latest_ : phase(); }
    /// Returns the number of update phases that have ended.
    int steps() const { return steps_; }
    int micro_batch() const { return phases_.empty() ? -1 : phases_.back().micro_batch; }

    const MemoryReport& memory() const { return ledger_.report(); }
    const TimeReport& time() const { return time_; }
    std::int64_t flops() const;
    /// Return how long the operations take at the full rate of arithmetic or of memory.
    Picoseconds product_roof() const;
    Picoseconds memory_roof() const;

  private:
    struct OpenPhase {
        Phase phase;
        int micro_batch;
        Picoseconds start;
        SourceLine at;
    };

    bool is_host() const { return host_ == nullptr; }
    void require_own(SourceLine at) const;
    void wait_for_host(SourceLine at);
    Picoseconds time_of(const DeviceOperation& operation) const;
    void compute(const DeviceOperation& operation, FunctionRef<void()> numbers);
    void advance(Picoseconds duration, SourceLine at);
    void move_to(Picoseconds time) {
        now_ = time;
        if (served_ != nullptr) served_->program_ = now_;
        time_.end = std::max(time_.end, now_);
    }
    void note_memory();

    // Every communication touches the next three members, so they are side by side.
    Picoseconds now_ = 0;
    Picoseconds program_ = 0;  ///< the host's clock, as the device knows it
    TimeReport time_;
    Engine& engine_;
    int rank_;
    VirtualDevice* host_;              ///< null if this is a host
    VirtualDevice* served_ = nullptr;  ///< a host's device
    const ClusterSpec& spec_;
    double slowdown_;  ///< factor on its computing times
    Scheduler& scheduler_;
    Trace& trace_;
    const Watchers& check_;
    bool numbers_;
    Ledger ledger_;
    HostMemory* memory_;  ///< holds the numbers; null if they are elsewhere
    std::array<std::int64_t, 4> flops_{};  ///< by DType
    std::int64_t bytes_ = 0;               ///< that operations read and wrote
    int steps_ = 0;                        ///< update phases that have ended
    bool began_ = false;                   ///< a phase has begun
    std::vector<OpenPhase> phases_;
    Phase latest_ = Phase::none;  ///< the phase that ended last
};

}  // namespace lockstep::sim

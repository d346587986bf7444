#pragma once

#include <algorithm>

#include "sim/host_memory.hpp"
#include "sim/scheduler.hpp"
#include "sim/trace.hpp"
#include "sim/watcher.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/device/ledger.hpp"
#include "src/device/monitor.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::sim {

/// The virtual side of a device: its clock, its ledger, its counters. Arithmetic is
/// elsewhere.
///
/// The compute queue runs operations in program order. Its clock, now(), is when all that
/// was issued so far is done; a communication begins then at the earliest, and waiting
/// for one moves the clock to its end.
///
/// A host is one, too. The program runs on it: what it computes, and what it waits for,
/// moves its clock, and what the device is then asked for begins no earlier.
class VirtualDevice final : public DeviceMonitor {
  public:
    struct Host {};

    VirtualDevice(Engine& engine, int rank, const ClusterOptions& options,
                  Scheduler& scheduler, Trace& trace, const Watchers& check, Host);
    /// The device beside that host.
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

    /// The device beside this host, whose program runs here.
    void serve(VirtualDevice& device) { served_ = &device; }
    /// The device's next operation begins no earlier than the program came to it.
    void follow_host(SourceLine at) {
        if (program_ > now_) wait_for_host(at);
    }
    /// Later operations come after `end`.
    void wait_until(Picoseconds end);
    /// A communicator's queue was busy; the rank ends no earlier than that.
    void communicated(Picoseconds start, Picoseconds end, SourceLine at);
    /// A queue of copies was.
    void copied(Picoseconds start, Picoseconds end, SourceLine at);
    /// A host copies so many bytes into or out of a pinned buffer.
    void stage(std::int64_t bytes, SourceLine at);

    Phase phase() const { return phases_.empty() ? Phase::none : phases_.back().phase; }
    /// Returns the phase that the device is in or, between phases, was in last.
    Phase latest_phase() const { return phases_.empty() ? latest_ : phase(); }
    int micro_batch() const { return phases_.empty() ? -1 : phases_.back().micro_batch; }

    const MemoryReport& memory() const { return ledger_.report(); }
    const TimeReport& time() const { return time_; }
    std::int64_t flops() const { return flops_; }

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

    // Every communication touches these three, so they stand together.
    Picoseconds now_ = 0;
    Picoseconds program_ = 0;  ///< the host's clock, as the device knows it
    TimeReport time_;
    Engine& engine_;
    int rank_;
    VirtualDevice* host_;              ///< null of a host
    VirtualDevice* served_ = nullptr;  ///< a host's device
    const ClusterSpec& spec_;
    double slowdown_;  ///< of what it computes
    Scheduler& scheduler_;
    Trace& trace_;
    const Watchers& check_;
    bool numbers_;
    Ledger ledger_;
    HostMemory* memory_;  ///< that its numbers lie in; null if they lie elsewhere
    std::int64_t flops_ = 0;
    int steps_ = 0;  ///< update phases that have ended
    std::vector<OpenPhase> phases_;
    Phase latest_ = Phase::none;  ///< the one that ended last
};

}  // namespace lockstep::sim

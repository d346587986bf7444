#include "sim/virtual_device.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "sim/block_cache.hpp"
#include "sim/engine.hpp"
#include "src/core/require.hpp"
#include "src/cost/virtual_time.hpp"

namespace lockstep::sim {

namespace {

// Handing an operation to a worker and back costs some ten microseconds; operations above
// these limits take longer.
constexpr std::int64_t kOffloadFlops = 4'000'000;
constexpr std::int64_t kOffloadBytes = 2'000'000;

}  // namespace

VirtualDevice::VirtualDevice(Engine& engine, int rank, const ClusterOptions& options,
                             Scheduler& scheduler, Trace& trace, const Watchers& check,
                             Host)
    : engine_(engine),
      rank_(rank),
      host_(nullptr),
      spec_(options.spec),
      slowdown_(1),
      scheduler_(scheduler),
      trace_(trace),
      check_(check),
      numbers_(options.numbers),
      ledger_(options.spec.host.memory_bytes),
      memory_(options.numbers ? &engine.host_memory() : nullptr) {}

namespace {

std::int64_t capacity_of(int rank, const ClusterOptions& options) {
    const auto own = options.memory_of_rank.find(rank);
    return own == options.memory_of_rank.end() ? options.spec.memory_bytes : own->second;
}

}  // namespace

VirtualDevice::VirtualDevice(Engine& engine, int rank, const ClusterOptions& options,
                             Scheduler& scheduler, Trace& trace, const Watchers& check,
                             VirtualDevice& host)
    : engine_(engine),
      rank_(rank),
      host_(&host),
      spec_(options.spec),
      slowdown_(options.spec.compute_factor(rank)),
      scheduler_(scheduler),
      trace_(trace),
      check_(check),
      numbers_(options.numbers),
      ledger_(capacity_of(rank, options)),
      memory_(options.numbers && !options.device_factory ? &engine.host_memory()
                                                         : nullptr) {}

/// Throws if another rank uses this device: its time would depend on the host's order.
void VirtualDevice::require_own(SourceLine at) const {
    const int user = scheduler_.current();
    require(user == rank_ || user < 0, at,
            "rank {} used device {}; ranks share nothing but messages", user, rank_);
}

void VirtualDevice::advance(Picoseconds duration, SourceLine at) {
    const Picoseconds then = time_sum(now_, duration);
    require_countable(then, rank_, at);
    move_to(then);
}

void VirtualDevice::wait_for_host(SourceLine at) {
    if (trace_.is_on())
        trace_.event({rank_, "compute", "wait for the host", "wait", now_, program_,
                      micro_batch(), 0, at, "host"});
    wait_until(program_);
}

/// The program runs on the host, so this moves the host's clock.
void VirtualDevice::sleep_until(Picoseconds time, SourceLine at) {
    require_own(at);
    require_countable(time, rank_, at);
    if (time > now()) (is_host() ? *this : *host_).wait_until(time);
}

Picoseconds VirtualDevice::time_of(const DeviceOperation& operation) const {
    if (spec_.phases) return 0;
    if (is_host())
        return operation_time(spec_.host, operation.flops, operation.bytes,
                              operation.dtype);
    return slowed(operation_time(spec_, operation.flops, operation.bytes, operation.dtype,
                                 operation.extent),
                  slowdown_);
}

void VirtualDevice::execute(const DeviceOperation& operation,
                            FunctionRef<void()> numbers) {
    require_own(operation.at);
    follow_host(operation.at);
    const Picoseconds start = now_;
    const Picoseconds duration = time_of(operation);
    advance(duration, operation.at);
    time_.compute += duration;
    flops_[static_cast<std::size_t>(operation.dtype)] += operation.flops;
    bytes_ += operation.bytes;
    if (trace_.is_on())
        trace_.event({rank_, is_host() ? "host" : "compute", operation.name, "operation",
                      start, now_, micro_batch(), operation.bytes, operation.at});
    check_.tell_of(rank_, &Watcher::executing, rank_, operation);
    if (numbers_) compute(operation, numbers);
}

std::int64_t VirtualDevice::flops() const {
    return std::reduce(flops_.begin(), flops_.end());
}

Picoseconds VirtualDevice::product_roof() const {
    if (spec_.phases) return 0;
    Picoseconds time = 0;
    for (std::size_t dtype = 0; dtype < flops_.size(); ++dtype)
        time = time_sum(
            time, time_at_rate(flops_[dtype], spec_.flops(static_cast<DType>(dtype))));
    return slowed(time, slowdown_);
}

Picoseconds VirtualDevice::memory_roof() const {
    return spec_.phases
               ? 0
               : slowed(time_at_rate(bytes_, spec_.memory_bytes_per_second), slowdown_);
}

void VirtualDevice::compute(const DeviceOperation& operation,
                            FunctionRef<void()> numbers) {
    const bool is_long =
        operation.flops > kOffloadFlops || operation.bytes > kOffloadBytes;
    if (is_long && scheduler_.current() >= 0)
        scheduler_.offload(numbers);
    else
        numbers();
}

void VirtualDevice::copy(CopyDirection direction, const Tensor& tensor, SourceLine at,
                         FunctionRef<void()> move) {
    require_own(at);
    follow_host(at);
    const Picoseconds start = now_;
    if (!spec_.phases)
        advance(is_host() ? staging_time(spec_.host, tensor.bytes())
                          : message_time(spec_.host_copy, tensor.bytes()),
                at);
    copied(start, now_, at);
    if (!is_host()) host_->wait_until(now_);
    if (trace_.is_on())
        trace_.event({rank_, "copy",
                      direction == CopyDirection::to_host ? "to host" : "to device",
                      "copy", start, now_, micro_batch(), tensor.bytes(), at});
    check_.tell_of(rank_, &Watcher::copying, rank_, direction, tensor, at);
    move();
    check_.tell_of(rank_, &Watcher::copied, rank_, direction, tensor, at);
}

Work VirtualDevice::start_copy(CopyDirection direction, const Tensor& destination,
                               const Tensor& source, SourceLine at) {
    require_own(at);
    return engine_.start_copy(rank_, direction, destination, source, at);
}

void VirtualDevice::stage(std::int64_t bytes, SourceLine at) {
    const Picoseconds start = now_;
    if (!spec_.phases) advance(staging_time(spec_.host, bytes), at);
    time_.compute += now_ - start;
    if (trace_.is_on())
        trace_.event(
            {rank_, "host", "stage", "operation", start, now_, -1, 2 * bytes, at});
}

void VirtualDevice::peeked(const Tensor& tensor, SourceLine at) {
    if (scheduler_.current() == rank_)
        check_.tell_of(rank_, &Watcher::copying, rank_, CopyDirection::to_host, tensor,
                       at);
}

void VirtualDevice::allocated(const Storage& storage) {
    require_own(storage.allocated_at);
    if (!ledger_.fits(storage.bytes)) {
        const std::string rank = fmt::format("rank {}", rank_);
        throw out_of_memory(ledger_, storage, is_host() ? "the host of " + rank : rank);
    }
    if (memory_ != nullptr)
        memory_->take(rank_, block_bytes(storage.bytes), storage.allocated_at);
    ledger_.add(storage.category, storage.bytes);
    note_memory();
}

void VirtualDevice::freed(const Storage& storage) noexcept {
    check_.tell(&Watcher::freed, rank_, storage);
    if (memory_ != nullptr) memory_->give(rank_, block_bytes(storage.bytes));
    ledger_.remove(storage.category, storage.bytes);
    note_memory();
}

void VirtualDevice::note_memory() {
    if (trace_.is_on() && !is_host())
        trace_.memory({rank_, now(), ledger_.report().current});
}

void VirtualDevice::phase_began(Phase phase, int micro_batch, SourceLine at) {
    follow_host(at);
    phases_.push_back({phase, micro_batch, now_, at});
    if (!std::exchange(began_, true)) time_.begin = now_;
    check_.tell_of(rank_, &Watcher::phase_began, rank_, phase, micro_batch);
    if (!spec_.phases) return;
    const ClusterSpec::PhaseTimes& times = *spec_.phases;
    double seconds = 0;
    if (phase == Phase::forward) seconds = times.forward;
    if (phase == Phase::backward) seconds = times.backward_input + times.backward_weight;
    if (phase == Phase::backward_input) seconds = times.backward_input;
    if (phase == Phase::backward_weight) seconds = times.backward_weight;
    const Picoseconds duration = slowed(countable_picoseconds(seconds), slowdown_);
    advance(duration, at);
    time_.compute += duration;
}

void VirtualDevice::phase_ended() noexcept {
    check_.tell(&Watcher::phase_ended, rank_);
    const OpenPhase ended = phases_.back();
    phases_.pop_back();
    latest_ = ended.phase;
    if (ended.phase == Phase::update) ++steps_;
    if (trace_.is_on())
        trace_.event({rank_, is_host() ? "host" : "compute", name_of(ended.phase),
                      "phase", ended.start, now_, ended.micro_batch, 0, ended.at});
}

void VirtualDevice::wait_until(Picoseconds end) {
    if (end <= now_) return;
    time_.waiting += end - now_;
    move_to(end);
}

/// Times of several queues add up, so the sum can be too large to count.
void VirtualDevice::communicated(Picoseconds start, Picoseconds end, SourceLine at) {
    time_.communication = time_sum(time_.communication, end - start);
    require_countable(time_.communication, rank_, at);
    time_.end = std::max(time_.end, end);
}

void VirtualDevice::copied(Picoseconds start, Picoseconds end, SourceLine at) {
    time_.copy = time_sum(time_.copy, end - start);
    require_countable(time_.copy, rank_, at);
    time_.end = std::max(time_.end, end);
}

}  // namespace lockstep::sim

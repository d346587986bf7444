#include "gpu/measured_device.hpp"

#include <algorithm>
#include <thread>

#include "gpu/check.hpp"
#include "gpu/host.hpp"

namespace lockstep::gpu {

void MeasuredDevice::measure(Spans::Kind kind, TraceEvent label,
                             FunctionRef<void()> work) {
    const std::size_t span = spans_.open(kind, std::move(label), stream());
    try {
        work();
    } catch (...) {
        try {
            spans_.close(span, stream());
        } catch (const GpuError&) {
            // The exception of `work` tells more.
        }
        throw;
    }
    spans_.close(span, stream());
}

/// Records an event after every few milliseconds of the GPU's work, so that each large
/// operation has its own event.
void MeasuredDevice::place_milestone(const DeviceOperation& operation) {
    constexpr double kBetween = 1e8;
    constexpr double kOfAnOperation = kBetween / 32;
    since_milestone_ += kOfAnOperation + static_cast<double>(operation.flops) +
                        static_cast<double>(operation.bytes);
    if (watch_.alone() || since_milestone_ < kBetween) return;
    since_milestone_ = 0;
    show_progress();
    if (free_milestones_.empty()) free_milestones_.emplace_back();
    milestones_.push_back(std::move(free_milestones_.back()));
    free_milestones_.pop_back();
    stream().record(milestones_.back());
}

void MeasuredDevice::show_progress() {
    while (!milestones_.empty() && milestones_.front().done()) {
        watch_.progress();
        free_milestones_.push_back(std::move(milestones_.front()));
        milestones_.pop_front();
    }
}

void MeasuredDevice::execute(const DeviceOperation& operation,
                             FunctionRef<void()> numbers) {
    watch_.progress();
    flops_ += operation.flops;
    TraceEvent label{.rank = rank_,
                     .queue = "compute",
                     .name = operation.name,
                     .kind = "operation",
                     .micro_batch = micro_batch(),
                     .bytes = operation.bytes,
                     .at = operation.at};
    const auto doing = [&] { return during(operation.name, operation.at); };
    naming(rank_, sync_, doing, [&] {
        measure(Spans::Kind::compute, std::move(label), numbers);
        place_milestone(operation);
    });
}

void MeasuredDevice::copy(CopyDirection direction, const Tensor& tensor, SourceLine at,
                          FunctionRef<void()> move) {
    watch_.progress();
    const bool to_host = direction == CopyDirection::to_host;
    TraceEvent label{.rank = rank_,
                     .queue = "copy",
                     .name = to_host ? "to host" : "to device",
                     .kind = "copy",
                     .micro_batch = micro_batch(),
                     .bytes = tensor.bytes(),
                     .at = at};
    const auto doing = [&] { return during(to_host ? "download" : "upload", at); };
    naming(rank_, sync_, doing,
           [&] { measure(Spans::Kind::copy, std::move(label), move); });
    watch_.progress();
}

Work MeasuredDevice::start_copy(CopyDirection direction, const Tensor& destination,
                                const Tensor& source, SourceLine at) {
    return copies_->start(direction, destination, source, at);
}

Picoseconds MeasuredDevice::now() const {
    using Nanoseconds = std::chrono::nanoseconds;
    const auto since = std::chrono::steady_clock::now() - made_;
    return 1000 * std::chrono::duration_cast<Nanoseconds>(since).count();
}

void MeasuredDevice::sleep_until(Picoseconds time, SourceLine /*at*/) {
    // Sleeps in pieces, so that the other processes see progress and this rank sees when
    // the run is stopped.
    constexpr Picoseconds kPiece = kSecond / 100;
    for (Picoseconds left = time - now(); left > 0; left = time - now()) {
        watch_.progress();
        watch_.check();
        std::this_thread::sleep_for(
            std::chrono::nanoseconds(std::min(left, kPiece) / 1000 + 1));
    }
}

void MeasuredDevice::allocated(const Storage& storage) {
    ledger_.add(storage.category, storage.bytes);
    spans_.memory({rank_, 0, ledger_.report().current}, stream());
}

void MeasuredDevice::freed(const Storage& storage) noexcept {
    ledger_.remove(storage.category, storage.bytes);
    try {
        spans_.memory({rank_, 0, ledger_.report().current}, stream());
    } catch (const std::exception&) {
        // Only the trace lacks a level; the next operation throws the fault of the GPU.
    }
}

void MeasuredDevice::phase_began(Phase phase, int micro_batch, SourceLine at) {
    OpenPhase& open = phases_.emplace_back(OpenPhase{micro_batch, std::nullopt});
    if (!spans_.traces()) return;
    open.span = spans_.open(Spans::Kind::phase,
                            {.rank = rank_,
                             .queue = "compute",
                             .name = name_of(phase),
                             .kind = "phase",
                             .micro_batch = micro_batch,
                             .at = at},
                            stream());
}

void MeasuredDevice::phase_ended() noexcept {
    const OpenPhase ended = phases_.back();
    phases_.pop_back();
    if (!ended.span) return;
    try {
        spans_.close(*ended.span, stream());
    } catch (const std::exception&) {
        // As for freed().
    }
}

}  // namespace lockstep::gpu

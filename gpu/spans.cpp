#include "gpu/spans.hpp"

#include <algorithm>
#include <cmath>

#include "gpu/check.hpp"

namespace lockstep::gpu {

std::unique_ptr<Event> Spans::take() {
    if (free_.empty()) return std::make_unique<Event>(Event::Timing::on);
    std::unique_ptr<Event> event = std::move(free_.back());
    free_.pop_back();
    return event;
}

void Spans::give_back(std::unique_ptr<Event> event) {
    free_.push_back(std::move(event));
}

void Spans::begin(Stream& stream) {
    reference_ = take();
    reference_time_ = 0;
    stream.record(*reference_);
}

std::size_t Spans::open(Kind kind, TraceEvent label, Stream& stream) {
    read_finished();
    Pending& span = pending_.emplace_back();
    span.kind = kind;
    span.label = std::move(label);
    span.start = take();
    stream.record(*span.start);
    return read_ + pending_.size() - 1;
}

void Spans::close(std::size_t number, Stream& stream) {
    Pending& span = pending_[number - read_];
    span.end = take();
    stream.record(*span.end);
}

void Spans::memory(const TraceMemory& level, Stream& stream) {
    if (!trace_) return;
    Pending& span = pending_.emplace_back();
    span.is_memory = true;
    span.level = level;
    span.start = take();
    stream.record(*span.start);
}

/// Events are made again and again, so what has happened is read before many are used.
void Spans::read_finished() {
    constexpr std::size_t kMany = 256;
    if (pending_.size() < kMany) return;
    while (!pending_.empty()) {
        const Pending& first = pending_.front();
        const bool closed = first.is_memory || first.end != nullptr;
        if (!closed || !(first.is_memory ? first.start : first.end)->done()) return;
        read(pending_.front());
        pending_.pop_front();
        ++read_;
    }
}

void Spans::finish() {
    for (; !pending_.empty(); pending_.pop_front(), ++read_)
        if (pending_.front().is_memory || pending_.front().end != nullptr)
            read(pending_.front());
}

void Spans::read(Pending& span) {
    const Picoseconds start = time_of(*span.start);
    if (span.is_memory) {
        span.level.time = start;
        levels_.push_back(span.level);
        return give_back(std::move(span.start));
    }
    float milliseconds = 0;
    GPU_CHECK(cudaEventElapsedTime(&milliseconds, span.start->get(), span.end->get()));
    const Picoseconds end = start + std::llround(double{milliseconds} * 1e9);
    count(span.kind, end - start);
    time_.end = std::max(time_.end, end);
    if (trace_ && span.kind != Kind::waiting) {
        span.label.start = start;
        span.label.end = end;
        events_.push_back(std::move(span.label));
    }
    constexpr Picoseconds kFar = 100'000'000'000;  // a tenth of a second
    if (start - reference_time_ > kFar) {
        std::swap(reference_, span.start);
        reference_time_ = start;
    }
    give_back(std::move(span.start));
    give_back(std::move(span.end));
}

Picoseconds Spans::time_of(const Event& event) const {
    float milliseconds = 0;
    GPU_CHECK(cudaEventElapsedTime(&milliseconds, reference_->get(), event.get()));
    return reference_time_ + std::llround(double{milliseconds} * 1e9);
}

void Spans::count(Kind kind, Picoseconds duration) {
    switch (kind) {
        case Kind::compute:
            time_.compute += duration;
            break;
        case Kind::communication:
            time_.communication += duration;
            break;
        case Kind::copy:
            time_.copy += duration;
            break;
        case Kind::waiting:
            time_.waiting += duration;
            break;
        case Kind::phase:
            break;
    }
}

void Spans::move_into(RunReport& report) {
    const auto earlier = [](const auto& a, const auto& b) { return a.start < b.start; };
    std::stable_sort(events_.begin(), events_.end(), earlier);
    std::stable_sort(
        levels_.begin(), levels_.end(),
        [](const TraceMemory& a, const TraceMemory& b) { return a.time < b.time; });
    report.trace = std::move(events_);
    report.memory_trace = std::move(levels_);
}

}  // namespace lockstep::gpu

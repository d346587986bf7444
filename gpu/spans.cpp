#include "gpu/spans.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <utility>

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
    began_ = host_now();
}

std::size_t Spans::open(Kind kind, TraceEvent label, Stream& stream) {
    if (continues_computing(kind, stream)) return computing_->number;
    end_computing();
    read_finished();
    Pending& span = pending_.emplace_back();
    span.kind = kind;
    span.label = std::move(label);
    span.start = take();
    stream.record(*span.start);
    const std::size_t number = first_ + pending_.size() - 1;
    if (kind == Kind::compute && !trace_) {
        std::unique_ptr<Event> end = take();
        computing_ = Computing{number, &stream, std::move(end), host_now()};
    }
    return number;
}

void Spans::close(std::size_t number, Stream& stream) {
    if (computing_ && computing_->number == number) {
        stream.record(*computing_->end);
        computing_->asked = host_now();
        return;
    }
    std::unique_ptr<Event> end = take();
    stream.record(*end);
    close_at(number, std::move(end));
}

/// Returns whether an operation continues the last compute span. It does not if the GPU
/// was idle: the host issued nothing for long, and all earlier work is done.
bool Spans::continues_computing(Kind kind, const Stream& stream) const {
    constexpr auto kLong = std::chrono::microseconds(100);
    if (kind != Kind::compute || !computing_ || computing_->stream != &stream)
        return false;
    return host_now() - computing_->asked < kLong || !computing_->end->done();
}

void Spans::end_computing() {
    if (!computing_) return;
    Computing ended = *std::exchange(computing_, std::nullopt);
    close_at(ended.number, std::move(ended.end));
}

void Spans::close_at(std::size_t number, std::unique_ptr<Event> end) {
    Pending& span = pending_[number - first_];
    span.end = std::move(end);
    // If the span's start was read before its end was known, queue the span again.
    if (number - first_ >= seen_) return;
    pending_.push_back(std::move(span));
    span = {};
    span.is_read = true;
}

Picoseconds Spans::on_host(TraceEvent label, HostTime start) {
    end_computing();
    const auto since_begin = [&](HostTime time) {
        const std::chrono::duration<double, std::pico> since = time - began_;
        return std::max<Picoseconds>(std::llround(since.count()), 0);
    };
    label.start = since_begin(start);
    label.end = since_begin(host_now());
    const Picoseconds duration = label.end - label.start;
    time_.end = std::max(time_.end, label.end);
    if (trace_) events_.push_back(std::move(label));
    return duration;
}

void Spans::memory(const TraceMemory& level, Stream& stream) {
    if (!trace_) return;
    Pending& span = pending_.emplace_back();
    span.is_memory = true;
    span.level = level;
    span.start = take();
    stream.record(*span.start);
}

/// Reads the spans that are over, so that their events can be used again. Spans that are
/// still open stay in the queue, but do not keep later spans from being read.
void Spans::read_finished() {
    constexpr std::size_t kMany = 256;
    if (pending_.size() - seen_ < kMany) return;
    while (seen_ < pending_.size() && is_over(pending_[seen_]))
        read(pending_[seen_++]);
    while (!pending_.empty() && pending_.front().is_read) {
        pending_.pop_front();
        ++first_;
        --seen_;
    }
}

/// Returns whether the GPU has passed all events of the span, so that read() does not
/// wait. An open span has no end event yet.
bool Spans::is_over(const Pending& span) {
    if (span.start != nullptr && !span.start->done()) return false;
    return span.is_memory || span.end == nullptr || span.end->done();
}

void Spans::finish() {
    for (; seen_ < pending_.size(); ++seen_)
        read(pending_[seen_]);
    pending_.clear();
}

/// Reads the time of the span's start and, if the span is closed, of its end.
void Spans::read(Pending& span) {
    if (span.start != nullptr) {
        span.label.start = time_of(*span.start);
        move_reference(span.label.start, span.start);
        give_back(std::move(span.start));
    }
    if (span.is_memory) {
        span.level.time = span.label.start;
        levels_.push_back(span.level);
        span.is_read = true;
        return;
    }
    if (span.end == nullptr) return;
    span.label.end = time_of(*span.end);
    give_back(std::move(span.end));
    span.is_read = true;
    count(span.kind, span.label.end - span.label.start);
    time_.end = std::max(time_.end, span.label.end);
    if (trace_ && span.kind != Kind::waiting) events_.push_back(std::move(span.label));
}

void Spans::move_reference(Picoseconds time, std::unique_ptr<Event>& event) {
    constexpr Picoseconds kFar = 100'000'000'000;  // a tenth of a second
    if (time - reference_time_ < kFar) return;
    std::swap(reference_, event);
    reference_time_ = time;
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

namespace {

/// Returns whether `event`, which begins no earlier than `before`, comes after the end of
/// `before`, not inside it. Only phases contain events. The end of a phase may differ
/// from an event's time by the rounding of two times.
bool comes_after(const TraceEvent& event, const TraceEvent& before) {
    constexpr Picoseconds kRounding = 1'000'000;
    return before.kind != "phase" || before.end <= event.start ||
           (before.end - event.start < kRounding && event.end > before.end);
}

/// Corrects the rounding of times, so that the events of a queue nest: an event begins no
/// earlier than the previous event's end, and ends no later than the phase around it.
void nest(std::vector<TraceEvent>& events) {
    std::map<std::string, std::vector<const TraceEvent*>> open;
    for (TraceEvent& event : events) {
        std::vector<const TraceEvent*>& around = open[event.queue];
        while (!around.empty() && comes_after(event, *around.back())) {
            event.start = std::max(event.start, around.back()->end);
            around.pop_back();
        }
        if (!around.empty()) event.end = std::min(event.end, around.back()->end);
        event.end = std::max(event.end, event.start);
        around.push_back(&event);
    }
}

}  // namespace

void Spans::move_into(RunReport& report) {
    std::stable_sort(events_.begin(), events_.end(),
                     [](const TraceEvent& a, const TraceEvent& b) {
                         return std::tuple(a.start, -a.end) < std::tuple(b.start, -b.end);
                     });
    nest(events_);
    std::stable_sort(
        levels_.begin(), levels_.end(),
        [](const TraceMemory& a, const TraceMemory& b) { return a.time < b.time; });
    report.trace = std::move(events_);
    report.memory_trace = std::move(levels_);
}

}  // namespace lockstep::gpu

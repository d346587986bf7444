#pragma once

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "gpu/stream.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::gpu {

/// Measures when what streams hold begins and ends: two events about it, read once they
/// have happened. Time 0 is begin(); their times are the GPU's, of a resolution of about
/// half a microsecond. What the host does itself is timed by the host's clock (on_host).
///
/// Two events cost the GPU and the host a few microseconds together, so short operations
/// seem longer than they are alone. Hence, unless a trace is asked for, computations that
/// follow each other within a tenth of a millisecond are one span, which has what lies
/// between them, too.
class Spans {
  public:
    /// What a span's duration counts as. Phases are only drawn.
    enum class Kind : std::uint8_t { compute, communication, copy, waiting, phase };

    explicit Spans(bool trace) : trace_(trace) {}

    /// The stream holds nothing, so that the host's clock and the GPU's begin together.
    void begin(Stream& stream);

    /// A span opens where `stream` now is. Its events are the caller's to place.
    std::size_t open(Kind kind, TraceEvent label, Stream& stream);
    /// And closes where `stream` now is.
    void close(std::size_t number, Stream& stream);
    /// Computations have ended: what comes next is a span of its own.
    void end_computing();
    /// Notes that the host itself was busy since `start`, by its own clock. Returns how
    /// long it took.
    using HostTime = std::chrono::steady_clock::time_point;
    static HostTime host_now() { return std::chrono::steady_clock::now(); }
    Picoseconds on_host(TraceEvent label, HostTime start);
    /// Memory in use from where the stream now is; kept in traces alone.
    void memory(const TraceMemory& level, Stream& stream);

    /// Reads what has not been read; all that was put into the streams is done.
    void finish();

    bool traces() const { return trace_; }
    const TimeReport& time() const { return time_; }
    /// Moves spans and memory levels into the report, by time.
    void move_into(RunReport& report);

  private:
    struct Pending {
        Kind kind = Kind::compute;
        bool is_memory = false;
        TraceEvent label;
        TraceMemory level;
        std::unique_ptr<Event> start;  ///< none once it has been read
        std::unique_ptr<Event> end;    ///< none while it is open
        bool is_read = false;
    };

    bool continues_computing(Kind kind, const Stream& stream) const;
    void close_at(std::size_t number, std::unique_ptr<Event> end);
    std::unique_ptr<Event> take();
    void give_back(std::unique_ptr<Event> event);
    void read_finished();
    static bool is_over(const Pending& span);
    void read(Pending& span);
    void move_reference(Picoseconds time, std::unique_ptr<Event>& event);
    Picoseconds time_of(const Event& event) const;
    void count(Kind kind, Picoseconds duration);

    bool trace_;
    std::deque<Pending> pending_;
    std::size_t first_ = 0;  ///< number of the span that is first in pending_
    std::size_t seen_ = 0;   ///< so many of pending_ are read, or were open when seen
    std::vector<std::unique_ptr<Event>> free_;
    /// Computations without a trace: their span, and where the last of them has ended.
    struct Computing {
        std::size_t number;
        Stream* stream;
        std::unique_ptr<Event> end;
        HostTime asked;  ///< for the last of them
    };
    std::optional<Computing> computing_;
    /// An event whose time is known, from which others are measured: CUDA gives
    /// differences as floats, exact to tens of nanoseconds only when they are short.
    std::unique_ptr<Event> reference_;
    Picoseconds reference_time_ = 0;
    HostTime began_;
    TimeReport time_;
    std::vector<TraceEvent> events_;
    std::vector<TraceMemory> levels_;
};

}  // namespace lockstep::gpu

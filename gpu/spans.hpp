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

/// Measures when the work in streams begins and ends, with one event before it and one
/// after it. Events are read once they have happened. Time 0 is begin(). The times of
/// events are the GPU's, with a resolution of about half a microsecond. The host's own
/// work is timed by the host's clock (on_host).
///
/// Two events cost the GPU and the host a few microseconds, so short operations seem
/// longer than they are without events. Unless a trace is asked for, computations that
/// follow each other within a tenth of a millisecond are one span, including the gaps
/// between them.
class Spans {
  public:
    /// The sum to which a span's duration is added. Phases are only drawn.
    enum class Kind : std::uint8_t { compute, communication, copy, waiting, phase };

    explicit Spans(bool trace) : trace_(trace) {}

    /// Sets time 0. The stream must be empty, so that the clocks of the host and the GPU
    /// begin together.
    void begin(Stream& stream);

    /// Opens a span at the current end of `stream`. The caller sets the label's fields.
    std::size_t open(Kind kind, TraceEvent label, Stream& stream);
    /// Closes the span at the current end of `stream`.
    void close(std::size_t number, Stream& stream);
    /// Ends the current span of computations; the next computation opens a new one.
    void end_computing();
    /// Notes that the host was busy from `start` until now, by its own clock. Returns the
    /// duration.
    using HostTime = std::chrono::steady_clock::time_point;
    static HostTime host_now() { return std::chrono::steady_clock::now(); }
    Picoseconds on_host(TraceEvent label, HostTime start);
    /// Notes the memory in use at the current end of the stream; only for traces.
    void memory(const TraceMemory& level, Stream& stream);

    /// Reads all remaining events. All work in the streams must be done.
    void finish();

    bool traces() const { return trace_; }
    const TimeReport& time() const { return time_; }
    /// Moves spans and memory levels into the report, ordered by time.
    void move_into(RunReport& report);

  private:
    struct Pending {
        Kind kind = Kind::compute;
        bool is_memory = false;
        TraceEvent label;
        TraceMemory level;
        std::unique_ptr<Event> start;  ///< null once it has been read
        std::unique_ptr<Event> end;    ///< null while the span is open
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
    std::size_t seen_ = 0;   ///< how many spans of pending_ were passed to read()
    std::vector<std::unique_ptr<Event>> free_;
    /// Without a trace: the current span of computations, and the end of the last one.
    struct Computing {
        std::size_t number;
        Stream* stream;
        std::unique_ptr<Event> end;
        HostTime asked;  ///< when the last computation was issued
    };
    std::optional<Computing> computing_;
    /// An event whose time is known; other events are measured from it. CUDA gives time
    /// differences as floats, which are exact to tens of nanoseconds only if they are
    /// short.
    std::unique_ptr<Event> reference_;
    Picoseconds reference_time_ = 0;
    HostTime began_;
    TimeReport time_;
    std::vector<TraceEvent> events_;
    std::vector<TraceMemory> levels_;
};

}  // namespace lockstep::gpu

#pragma once

#include <string>
#include <vector>

#include "src/run/run_report.hpp"

namespace lockstep::sim {

/// Spans, messages and memory levels of a run as they happen; nothing where it is off.
class Trace {
  public:
    explicit Trace(bool on) : on_(on) {}

    bool on() const { return on_; }
    void event(TraceEvent event) {
        if (on_) events_.push_back(std::move(event));
    }
    void flow(const TraceFlow& flow) {
        if (on_) flows_.push_back(flow);
    }
    void memory(const TraceMemory& level) {
        if (on_) memory_.push_back(level);
    }

    /// Moves what was recorded into the report, in an order that does not depend on the
    /// host's: by rank, then by time.
    void move_into(RunReport& report);

  private:
    bool on_;
    std::vector<TraceEvent> events_;
    std::vector<TraceFlow> flows_;
    std::vector<TraceMemory> memory_;
};

}  // namespace lockstep::sim

#pragma once

#include <algorithm>
#include <tuple>
#include <vector>

#include "src/run/run_report.hpp"

namespace lockstep::sim {

/// Records spans, messages and memory levels of a run as they happen, if it is on.
class Trace {
  public:
    explicit Trace(bool is_on) : is_on_(is_on) {}

    bool is_on() const { return is_on_; }
    /// Adds an event and returns its number; -1 if the trace is off.
    int event(TraceEvent event) {
        if (is_on_) events_.push_back(std::move(event));
        return static_cast<int>(events_.size()) - 1;
    }
    const TraceEvent& at(int number) const { return events_[number]; }
    void flow(TraceFlow flow) {
        if (is_on_) flows_.push_back(std::move(flow));
    }
    void memory(const TraceMemory& level) {
        if (is_on_) memory_.push_back(level);
    }

    /// Moves the records into the report, sorted by rank, then by time, so that the
    /// host's order does not show.
    void move_into(RunReport& report) {
        // A rank's own records were made in its program order, which a stable sort keeps.
        std::stable_sort(events_.begin(), events_.end(),
                         [](const auto& a, const auto& b) {
                             return std::tie(a.rank, a.start) < std::tie(b.rank, b.start);
                         });
        std::stable_sort(flows_.begin(), flows_.end(), [](const auto& a, const auto& b) {
            return std::tie(a.source_rank, a.start, a.destination_rank) <
                   std::tie(b.source_rank, b.start, b.destination_rank);
        });
        std::stable_sort(memory_.begin(), memory_.end(),
                         [](const auto& a, const auto& b) { return a.rank < b.rank; });
        report.trace = std::move(events_);
        report.flows = std::move(flows_);
        report.memory_trace = std::move(memory_);
    }

  private:
    bool is_on_;
    std::vector<TraceEvent> events_;
    std::vector<TraceFlow> flows_;
    std::vector<TraceMemory> memory_;
};

}  // namespace lockstep::sim

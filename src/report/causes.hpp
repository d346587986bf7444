#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "src/run/run_report.hpp"

namespace lockstep {

/// Why an event did not begin earlier.
struct Cause {
    std::string words;                ///< "waited 12 us for all_reduce"; empty if unknown
    std::vector<std::size_t> events;  ///< the trace's events that it waited for, by index
};

/// Finds what each event of a trace waited for: a computation waits for the communication
/// before it, and a communication waits for the rank that arrived last. The report must
/// outlive this object.
class Causes {
  public:
    explicit Causes(const RunReport& report);

    Cause cause_of(const TraceEvent& event) const;

  private:
    using Events = std::vector<const TraceEvent*>;

    Cause of_computation(const TraceEvent& event) const;
    Cause of_communication(const TraceEvent& event) const;
    /// Returns the rank's event that ended when the rank reached the communication; null
    /// if unknown.
    const TraceEvent* ended_before(const TraceEvent& event) const;
    /// Returns the communication for which a wait event waited; null if it is not in the
    /// trace.
    const TraceEvent* communication_of(const TraceEvent& wait) const;
    std::size_t place(const TraceEvent& event) const;

    const RunReport& report_;
    std::map<std::pair<int, Picoseconds>, const TraceEvent*>
        computed_;                                                     ///< by their ends
    std::map<std::pair<int, Picoseconds>, const TraceEvent*> waited_;  ///< by their ends
    std::map<std::pair<std::string, Picoseconds>, Events> began_;  ///< by queue and start
    std::map<std::pair<std::string, Picoseconds>, Events> ended_;  ///< by queue and end
};

}  // namespace lockstep

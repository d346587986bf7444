#include "sim/trace.hpp"

#include <algorithm>
#include <tuple>

namespace lockstep::sim {

void Trace::move_into(RunReport& report) {
    // A rank's own records were made in its program order, which a stable sort keeps.
    std::stable_sort(events_.begin(), events_.end(), [](const auto& a, const auto& b) {
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

}  // namespace lockstep::sim

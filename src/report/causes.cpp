#include "src/report/causes.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace lockstep {

namespace {

std::string devices_text(const std::vector<int>& ranks) {
    return fmt::format("{} {}", ranks.size() == 1 ? "device" : "devices",
                       fmt::join(ranks, ", "));
}

/// Returns "all_reduce" for "wait for all_reduce".
std::string waited_for(const TraceEvent& wait) {
    constexpr std::string_view kBegin = "wait for ";
    return wait.name.starts_with(kBegin) ? wait.name.substr(kBegin.size()) : wait.name;
}

}  // namespace

Causes::Causes(const RunReport& report) : report_(report) {
    for (const TraceEvent& event : report.trace) {
        if (event.kind == "wait" && event.end > event.start)
            waited_[{event.rank, event.end}] = &event;
        // A phase and its last operation end together. The operation says more.
        if (event.kind == "operation") computed_[{event.rank, event.end}] = &event;
        if (event.kind != "communication") continue;
        began_[{event.queue, event.start}].push_back(&event);
        ended_[{event.queue, event.end}].push_back(&event);
    }
}

Cause Causes::cause_of(const TraceEvent& event) const {
    return event.kind == "communication" ? of_communication(event)
           : event.queue == "compute"    ? of_computation(event)
                                         : Cause{};
}

Cause Causes::of_computation(const TraceEvent& event) const {
    const auto found = waited_.find({event.rank, event.start});
    if (found == waited_.end()) return {};
    const TraceEvent& wait = *found->second;
    const std::string name = waited_for(wait);
    Cause cause;
    cause.words =
        fmt::format("it waited {} for {}", time_text(wait.end - wait.start), name);
    if (const TraceEvent* before = communication_of(wait))
        cause.events.push_back(place(*before));
    return cause;
}

Cause Causes::of_communication(const TraceEvent& event) const {
    Cause cause;
    std::vector<int> last;
    std::size_t members = 0;
    for (const TraceEvent* member : began_.at({event.queue, event.start})) {
        if (member->end != event.end) continue;
        ++members;
        if (member->issued != event.start) continue;
        last.push_back(member->rank);
        if (const TraceEvent* before = ended_before(*member))
            cause.events.push_back(place(*before));
    }
    if (event.start > 0 && !last.empty()) {
        std::ranges::sort(last);
        cause.words =
            last.size() == members
                ? "it began when all its devices arrived, at the same time"
                : fmt::format("it began when {} arrived last", devices_text(last));
        return cause;
    }
    const auto ended = ended_.find({event.queue, event.start});
    if (ended == ended_.end()) return cause;
    for (const TraceEvent* before : ended->second)
        if (before->rank == event.rank) {
            cause.words = fmt::format("it began when the previous {} in its queue ended",
                                      before->name);
            cause.events = {place(*before)};
        }
    return cause;
}

const TraceEvent* Causes::ended_before(const TraceEvent& event) const {
    const auto computed = computed_.find({event.rank, event.issued});
    if (computed != computed_.end()) return computed->second;
    const auto waited = waited_.find({event.rank, event.issued});
    return waited == waited_.end() ? nullptr : communication_of(*waited->second);
}

const TraceEvent* Causes::communication_of(const TraceEvent& wait) const {
    const auto ended = ended_.find({wait.communicator, wait.end});
    if (ended == ended_.end()) return nullptr;
    for (const TraceEvent* each : ended->second)
        if (each->rank == wait.rank && each->name == waited_for(wait)) return each;
    return nullptr;
}

std::size_t Causes::place(const TraceEvent& event) const {
    return static_cast<std::size_t>(&event - report_.trace.data());
}

}  // namespace lockstep

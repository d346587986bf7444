#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/comm/operation.hpp"
#include "src/core/function_ref.hpp"
#include "src/cost/collectives.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// Counts of one verb over one class of link.
struct TrafficCount {
    std::int64_t calls = 0;
    std::int64_t messages_sent = 0;
    std::int64_t bytes_sent = 0;
    std::int64_t messages_received = 0;
    std::int64_t bytes_received = 0;
    bool operator==(const TrafficCount&) const = default;
    TrafficCount& operator+=(const TrafficCount& part);
};

/// Inside and between nodes.
using TrafficByLink = std::array<TrafficCount, 2>;

/// A rank's traffic over one communicator, by verb.
using TrafficByVerb = std::array<TrafficByLink, kVerbs>;

/// Whether two ranks of the run are on one node.
using SameNode = FunctionRef<bool(int, int)>;

/// What a member of a communicator, whose ranks of the run are `ranks`, exchanges in a
/// collective. The call itself counts once, among those inside a node.
TrafficByLink collective_share(const CollectiveCall& call, int member,
                               const std::vector<int>& ranks, SameNode same_node);

/// What a send, or a recv, of `bytes` counts.
TrafficCount message_share(Verb verb, std::int64_t bytes);

/// Appends a rank's counts over the communicator `group` to its report, verb by verb.
void append_traffic(const std::string& group, const TrafficByVerb& counts,
                    std::vector<Traffic>& traffic);

}  // namespace lockstep

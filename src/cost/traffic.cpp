#include "src/cost/traffic.hpp"

namespace lockstep {

TrafficCount& TrafficCount::operator+=(const TrafficCount& part) {
    calls += part.calls;
    messages_sent += part.messages_sent;
    bytes_sent += part.bytes_sent;
    messages_received += part.messages_received;
    bytes_received += part.bytes_received;
    return *this;
}

TrafficByLink collective_share(const CollectiveCall& call, int member,
                               const std::vector<int>& ranks, SameNode same_node) {
    TrafficByLink share;
    share[0].calls = 1;
    const int rank = ranks[member];
    for_each_transfer(call, member, [&](const Transfer& transfer) {
        const int peer = ranks[transfer.peer];
        TrafficCount& count = share[same_node(rank, peer) ? 0 : 1];
        (transfer.sent ? count.messages_sent : count.messages_received) +=
            transfer.messages;
        (transfer.sent ? count.bytes_sent : count.bytes_received) += transfer.bytes;
    });
    return share;
}

TrafficCount message_share(Verb verb, std::int64_t bytes) {
    return verb == Verb::send ? TrafficCount{1, 1, bytes, 0, 0}
                              : TrafficCount{1, 0, 0, 1, bytes};
}

void append_traffic(const std::string& group, const TrafficByVerb& counts,
                    std::vector<Traffic>& traffic) {
    for (std::size_t verb = 0; verb < kVerbs; ++verb) {
        for (const bool between : {false, true}) {
            const TrafficCount& count = counts[verb][between ? 1 : 0];
            if (count == TrafficCount{}) continue;
            traffic.push_back({group, name_of(static_cast<Verb>(verb)), between,
                               count.calls, count.messages_sent, count.bytes_sent,
                               count.messages_received, count.bytes_received});
        }
    }
}

}  // namespace lockstep

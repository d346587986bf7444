#include "sim/traffic.hpp"

namespace lockstep::sim {

namespace {

Count& count_of(Team& team, int member, Verb verb, bool between_nodes) {
    return team.counts[static_cast<std::size_t>(member)][static_cast<std::size_t>(verb)]
                      [between_nodes ? 1 : 0];
}

}  // namespace

void count_collective(Team& team, int member, const CollectiveCall& call,
                      const ClusterSpec& spec) {
    const auto rank = [&](int place) {
        return team.ranks[static_cast<std::size_t>(place)];
    };
    ++count_of(team, member, call.verb, false).calls;
    for_each_transfer(call, member, [&](const Transfer& transfer) {
        const bool between = !spec.same_node(rank(member), rank(transfer.peer));
        Count& count = count_of(team, member, call.verb, between);
        (transfer.sent ? count.messages_sent : count.messages_received) +=
            transfer.messages;
        (transfer.sent ? count.bytes_sent : count.bytes_received) += transfer.bytes;
    });
}

void count_message(const Message& message, const ClusterSpec& spec) {
    const bool between = !spec.same_node(message.source, message.destination);
    Batch& sender = *message.send->batch;
    Batch& receiver = *message.recv->batch;
    Count& out = count_of(*sender.team, sender.member, Verb::send, between);
    ++out.calls;
    ++out.messages_sent;
    out.bytes_sent += message.bytes;
    Count& in = count_of(*receiver.team, receiver.member, Verb::recv, between);
    ++in.calls;
    ++in.messages_received;
    in.bytes_received += message.bytes;
}

void add_traffic(const Team& team, int member, std::vector<Traffic>& traffic) {
    const Counts& counts = team.counts[static_cast<std::size_t>(member)];
    for (std::size_t verb = 0; verb < kVerbs; ++verb) {
        for (const bool between : {false, true}) {
            const Count& count = counts[verb][between ? 1 : 0];
            if (count == Count{}) continue;
            traffic.push_back({team.name, name_of(static_cast<Verb>(verb)), between,
                               count.calls, count.messages_sent, count.bytes_sent,
                               count.messages_received, count.bytes_received});
        }
    }
}

}  // namespace lockstep::sim

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
    const CollectiveTraffic moved = collective_traffic(call, member);
    const int n = team.size();
    const auto rank = [&](int place) {
        return team.ranks[static_cast<std::size_t>(place % n)];
    };
    const bool out_between = !spec.same_node(rank(member), rank(member + 1));
    const bool in_between = !spec.same_node(rank(member), rank(member + n - 1));

    Count& out = count_of(team, member, call.verb, out_between);
    ++out.calls;
    out.messages_sent += moved.messages_sent;
    out.bytes_sent += moved.bytes_sent;
    Count& in = count_of(team, member, call.verb, in_between);
    in.messages_received += moved.messages_received;
    in.bytes_received += moved.bytes_received;
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
            if (count.calls == 0 && count.messages_received == 0) continue;
            traffic.push_back({team.name, name_of(static_cast<Verb>(verb)), between,
                               count.calls, count.messages_sent, count.bytes_sent,
                               count.messages_received, count.bytes_received});
        }
    }
}

}  // namespace lockstep::sim

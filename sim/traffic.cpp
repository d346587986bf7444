#include "sim/traffic.hpp"

namespace lockstep::sim {

namespace {

Count& count_of(Team& team, int member, Verb verb, bool between_nodes) {
    return team.counts[static_cast<std::size_t>(member)][static_cast<std::size_t>(verb)]
                      [between_nodes ? 1 : 0];
}

void add(Count& sum, const Count& part) {
    sum.calls += part.calls;
    sum.messages_sent += part.messages_sent;
    sum.bytes_sent += part.bytes_sent;
    sum.messages_received += part.messages_received;
    sum.bytes_received += part.bytes_received;
}

ByLink share_of(const Team& team, int member, const CollectiveCall& call,
                const ClusterSpec& spec) {
    ByLink share;
    share[0].calls = 1;
    const int rank = team.ranks[static_cast<std::size_t>(member)];
    for_each_transfer(call, member, [&](const Transfer& transfer) {
        const int peer = team.ranks[static_cast<std::size_t>(transfer.peer)];
        Count& count = share[spec.same_node(rank, peer) ? 0 : 1];
        (transfer.sent ? count.messages_sent : count.messages_received) +=
            transfer.messages;
        (transfer.sent ? count.bytes_sent : count.bytes_received) += transfer.bytes;
    });
    return share;
}

}  // namespace

void count_collective(Team& team, const CollectiveCall& call, const ClusterSpec& spec) {
    if (team.shares.empty() || !(team.shared_call == call)) {
        team.shared_call = call;
        team.shares.assign(team.members.size(), {});
        for (int member = 0; member < team.size(); ++member)
            team.shares[static_cast<std::size_t>(member)] =
                share_of(team, member, call, spec);
    }
    for (std::size_t member = 0; member < team.members.size(); ++member) {
        ByLink& counts = team.counts[member][static_cast<std::size_t>(call.verb)];
        for (std::size_t link = 0; link < counts.size(); ++link)
            add(counts[link], team.shares[member][link]);
    }
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

#include "sim/traffic.hpp"

namespace lockstep::sim {

void count_collective(Team& team, const CollectiveCall& call, const ClusterSpec& spec) {
    const auto same_node = [&](int a, int b) { return spec.same_node(a, b); };
    if (team.shares.empty() || !(team.shared_call == call)) {
        team.shared_call = call;
        team.shares.assign(team.members.size(), {});
        for (int member = 0; member < team.size(); ++member)
            team.shares[static_cast<std::size_t>(member)] =
                collective_share(call, member, team.ranks, same_node);
    }
    for (std::size_t member = 0; member < team.members.size(); ++member) {
        TrafficByLink& counts = team.counts[member][static_cast<std::size_t>(call.verb)];
        for (std::size_t link = 0; link < counts.size(); ++link)
            counts[link] += team.shares[member][link];
    }
}

void count_message(const Message& message, const ClusterSpec& spec) {
    const std::size_t link = spec.same_node(message.source, message.destination) ? 0 : 1;
    for (const Posted* side : {message.send, message.recv}) {
        const Batch& batch = *side->batch;
        const auto verb = static_cast<std::size_t>(side->operation.verb);
        batch.team->counts[static_cast<std::size_t>(batch.member)][verb][link] +=
            message_share(side->operation.verb, message.bytes);
    }
}

void add_traffic(const Team& team, int member, std::vector<Traffic>& traffic) {
    append_traffic(team.name, team.counts[static_cast<std::size_t>(member)], traffic);
}

}  // namespace lockstep::sim

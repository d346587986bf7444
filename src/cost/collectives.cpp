#include "src/cost/collectives.hpp"

#include <map>

#include "src/comm/chunks.hpp"

namespace lockstep {

namespace {

/// Returns the number of elements outside chunk `skipped`; this index wraps around the
/// ring.
std::int64_t all_but(std::int64_t count, int n, int skipped) {
    return count - chunk(count, n, (skipped % n + n) % n).count;
}

/// Calls tell() with each transfer of a rank in a collective.
class RankTransfers {
  public:
    RankTransfers(const CollectiveCall& call, int rank,
                  FunctionRef<void(const Transfer&)> tell)
        : call_(call), n_(call.ranks), rank_(rank), tell_(tell) {}

    /// In the ring's reduce-scatter a rank sends every chunk except its own, and receives
    /// every chunk except its left neighbour's.
    void reduce_scatter(std::int64_t count) const {
        sent(rank_ + 1, n_ - 1, bytes(all_but(count, n_, rank_)));
        received(rank_ - 1, n_ - 1, bytes(all_but(count, n_, rank_ - 1)));
    }
    /// In the ring's all-gather a rank begins with its own chunk.
    void all_gather(std::int64_t count) const {
        sent(rank_ + 1, n_ - 1, bytes(all_but(count, n_, rank_ + 1)));
        received(rank_ - 1, n_ - 1, bytes(all_but(count, n_, rank_)));
    }
    /// A chain around the ring that begins at `first`; each rank passes the whole buffer
    /// on.
    void chain(int first) const {
        const int place = (rank_ - first + n_) % n_;
        if (place < n_ - 1) sent(rank_ + 1, 1, bytes(call_.count));
        if (place > 0) received(rank_ - 1, 1, bytes(call_.count));
    }
    void gather() const {
        for_others_of_root([&](int peer) { received(peer, 1, bytes(call_.count)); },
                           [&] { sent(call_.root, 1, bytes(call_.count)); });
    }
    void scatter() const {
        for_others_of_root([&](int peer) { sent(peer, 1, bytes(call_.count)); },
                           [&] { received(call_.root, 1, bytes(call_.count)); });
    }
    void all_to_all() const {
        for (int step = 1; step < n_; ++step) {
            sent(rank_ + step, 1, bytes(call_.count));
            received(rank_ - step, 1, bytes(call_.count));
        }
    }
    void barrier() const {
        for (int distance = 1; distance < n_; distance *= 2) {
            sent(rank_ + distance, 1, 0);
            received(rank_ - distance, 1, 0);
        }
    }

  private:
    std::int64_t bytes(std::int64_t elements) const {
        return elements * call_.element_bytes;
    }
    void sent(int peer, std::int64_t messages, std::int64_t amount) const {
        tell_({(peer + n_) % n_, messages, amount, true});
    }
    void received(int peer, std::int64_t messages, std::int64_t amount) const {
        tell_({(peer + n_) % n_, messages, amount, false});
    }
    template <typename AtRoot, typename Elsewhere>
    void for_others_of_root(AtRoot at_root, Elsewhere elsewhere) const {
        if (rank_ != call_.root) return elsewhere();
        for (int peer = 0; peer < n_; ++peer)
            if (peer != rank_) at_root(peer);
    }

    const CollectiveCall& call_;
    int n_;
    int rank_;
    FunctionRef<void(const Transfer&)> tell_;
};

}  // namespace

void for_each_transfer(const CollectiveCall& call, int rank,
                       FunctionRef<void(const Transfer&)> tell) {
    if (call.ranks == 1) return;
    const RankTransfers transfers(call, rank, tell);
    switch (call.verb) {
        case Verb::all_reduce:
            transfers.reduce_scatter(call.count);
            return transfers.all_gather(call.count);
        case Verb::all_gather:
            return transfers.all_gather(call.count * call.ranks);
        case Verb::reduce_scatter:
            return transfers.reduce_scatter(call.count * call.ranks);
        case Verb::broadcast:
            return transfers.chain(call.root);
        // The chain of a reduce ends at the root, so it begins at the rank after the
        // root.
        case Verb::reduce:
            return transfers.chain((call.root + 1) % call.ranks);
        case Verb::gather:
            return transfers.gather();
        case Verb::scatter:
            return transfers.scatter();
        case Verb::all_to_all:
            return transfers.all_to_all();
        case Verb::barrier:
            return transfers.barrier();
        case Verb::split:
        case Verb::send:
        case Verb::recv:
        case Verb::copy:
            return;
    }
}

CollectiveTraffic collective_traffic(const CollectiveCall& call, int rank) {
    CollectiveTraffic sum;
    for_each_transfer(call, rank, [&](const Transfer& transfer) {
        (transfer.sent ? sum.messages_sent : sum.messages_received) += transfer.messages;
        (transfer.sent ? sum.bytes_sent : sum.bytes_received) += transfer.bytes;
    });
    return sum;
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

namespace {

/// Every member sends a block to each other member, and gets one from it.
std::vector<TrafficByLink> all_to_all_shares(const CollectiveCall& call,
                                             const std::vector<int>& ranks,
                                             const ClusterSpec& spec) {
    std::map<int, int> members_on;
    for (const int rank : ranks)
        ++members_on[spec.node_of(rank)];
    std::vector<TrafficByLink> shares;
    shares.reserve(ranks.size());
    for (const int rank : ranks) {
        const int inside = members_on.at(spec.node_of(rank)) - 1;
        const auto exchanged = [&](std::int64_t calls, int others) {
            const std::int64_t bytes = others * call.count * call.element_bytes;
            return TrafficCount{calls, others, bytes, others, bytes};
        };
        shares.push_back({exchanged(1, inside), exchanged(0, call.ranks - 1 - inside)});
    }
    return shares;
}

}  // namespace

std::vector<TrafficByLink> collective_shares(const CollectiveCall& call,
                                             const std::vector<int>& ranks,
                                             const ClusterSpec& spec) {
    if (call.verb == Verb::all_to_all) return all_to_all_shares(call, ranks, spec);
    const auto same_node = [&](int a, int b) { return spec.same_node(a, b); };
    std::vector<TrafficByLink> shares;
    shares.reserve(ranks.size());
    for (int member = 0; member < call.ranks; ++member)
        shares.push_back(collective_share(call, member, ranks, same_node));
    return shares;
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

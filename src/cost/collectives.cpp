#include "src/cost/collectives.hpp"

#include <algorithm>
#include <bit>
#include <map>

#include "src/comm/chunks.hpp"
#include "src/cost/virtual_time.hpp"

namespace lockstep {

namespace {

int ceil_log2(int n) {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1)));
}
int floor_log2(int n) {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(n))) - 1;
}

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

namespace {

Picoseconds time_over(const CollectiveCall& call, const LinkSpec& link) {
    const int n = call.ranks;
    const std::int64_t bytes = call.count * call.element_bytes;
    const std::int64_t largest_chunk = (call.count + n - 1) / n * call.element_bytes;
    switch (call.verb) {
        case Verb::all_reduce:
            return time_product(std::int64_t{2} * (n - 1),
                                message_time(link, largest_chunk));
        case Verb::all_gather:
        case Verb::reduce_scatter:
        case Verb::gather:
        case Verb::scatter:
        case Verb::all_to_all:
            return time_product(n - 1, message_time(link, bytes));
        // A pipelined chain with small enough pieces takes the latency of every hop, plus
        // the time of all bytes on one hop.
        case Verb::broadcast:
        case Verb::reduce:
            return time_sum(time_product(n - 2, message_time(link, 0)),
                            message_time(link, bytes));
        case Verb::barrier:
            return time_product(ceil_log2(n), message_time(link, 0));
        case Verb::split:
        case Verb::send:
        case Verb::recv:
        case Verb::copy:
            break;
    }
    return 0;
}

/// The members of a collective. Some of them are slow. The slower end of a message sets
/// its pace.
class Stragglers {
  public:
    Stragglers(const ClusterSpec& spec, const std::vector<int>& members) {
        for (const int member : members)
            factors_.push_back(spec.link_factor(member));
    }

    Picoseconds time_over(const CollectiveCall& call, const LinkSpec& link) const {
        if (call.verb == Verb::gather || call.verb == Verb::scatter)
            return time_at_root(call, link);
        if (call.verb == Verb::broadcast) return time_of_chain(call, call.root, link);
        if (call.verb == Verb::reduce) return time_of_chain(call, call.root + 1, link);
        // In each step every member waits, directly or through others, for the slowest
        // message.
        return slowed(lockstep::time_over(call, link), std::ranges::max(factors_));
    }

  private:
    double factor(int a, int b) const {
        return std::max(factors_[a % factors_.size()], factors_[b % factors_.size()]);
    }
    /// One message after another passes the root's port.
    Picoseconds time_at_root(const CollectiveCall& call, const LinkSpec& link) const {
        const Picoseconds even = message_time(link, call.count * call.element_bytes);
        Picoseconds time = 0;
        for (int peer = 0; peer < call.ranks; ++peer)
            if (peer != call.root)
                time = time_sum(time, slowed(even, factor(call.root, peer)));
        return time;
    }
    /// Returns the latencies of all hops, plus the time of the bytes on the slowest hop.
    Picoseconds time_of_chain(const CollectiveCall& call, int first,
                              const LinkSpec& link) const {
        const Picoseconds hop = message_time(link, 0);
        const Picoseconds whole = message_time(link, call.count * call.element_bytes);
        double slowest = 1;
        Picoseconds latency = 0;
        for (int from = first; from < first + call.ranks - 1; ++from) {
            slowest = std::max(slowest, factor(from, from + 1));
            latency = time_sum(latency, slowed(hop, factor(from, from + 1)));
        }
        return time_sum(latency, slowed(whole - hop, slowest));
    }

    std::vector<double> factors_;  ///< by member
};

}  // namespace

Picoseconds collective_time(const CollectiveCall& call, const ClusterSpec& spec,
                            const std::vector<int>& members) {
    if (call.ranks == 1) return 0;
    bool inside = false;
    bool between = false;
    for (std::size_t i = 0; i < members.size(); ++i)
        (spec.same_node(members[i], members[(i + 1) % members.size()]) ? inside
                                                                       : between) = true;
    const auto over = [&](const LinkSpec& link) {
        return spec.stragglers.empty() ? time_over(call, link)
                                       : Stragglers(spec, members).time_over(call, link);
    };
    return std::max(inside ? over(spec.inside) : 0, between ? over(spec.between) : 0);
}

Picoseconds collective_latency(CollectiveCall call, const ClusterSpec& spec,
                               const std::vector<int>& members) {
    call.count = 0;
    return collective_time(call, spec, members);
}

namespace {

double message_seconds(const LinkSpec& link, double bytes) {
    return link.alpha_seconds +
           (link.bytes_per_second > 0 ? bytes / link.bytes_per_second : 0);
}

double folding_seconds(const LinkSpec& link, std::int64_t bytes, int ranks) {
    const bool power = std::has_single_bit(static_cast<unsigned>(ranks));
    return power ? 0 : 2 * message_seconds(link, static_cast<double>(bytes));
}

}  // namespace

double ring_all_reduce_seconds(const LinkSpec& link, std::int64_t bytes, int ranks) {
    return 2 * (ranks - 1) * message_seconds(link, static_cast<double>(bytes) / ranks);
}

double recursive_doubling_seconds(const LinkSpec& link, std::int64_t bytes, int ranks) {
    return floor_log2(ranks) * message_seconds(link, static_cast<double>(bytes)) +
           folding_seconds(link, bytes, ranks);
}

double halving_doubling_seconds(const LinkSpec& link, std::int64_t bytes, int ranks) {
    const int n = static_cast<int>(std::bit_floor(static_cast<unsigned>(ranks)));
    const double moved = 2.0 * (n - 1) / n * static_cast<double>(bytes);
    return 2 * floor_log2(ranks) * link.alpha_seconds +
           (link.bytes_per_second > 0 ? moved / link.bytes_per_second : 0) +
           folding_seconds(link, bytes, ranks);
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

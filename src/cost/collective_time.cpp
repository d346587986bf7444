#include <algorithm>
#include <bit>
#include <limits>
#include <utility>
#include <vector>

#include "src/cost/collectives.hpp"
#include "src/cost/virtual_time.hpp"

namespace lockstep {

namespace {

int ceil_log2(int n) {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(n - 1)));
}
int floor_log2(int n) {
    return static_cast<int>(std::bit_width(static_cast<unsigned>(n))) - 1;
}

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

/// The nodes of a group's members.
struct GroupOnNodes {
    GroupOnNodes(const ClusterSpec& spec, const std::vector<int>& members, int root)
        : ranks(static_cast<int>(members.size())) {
        std::vector<std::pair<int, int>> counts;  // of a node's members
        std::size_t last = 0;
        for (const int member : members) {
            const int node = spec.node_of(member);
            if (counts.empty() || counts[last].first != node) {
                const auto found =
                    std::ranges::find(counts, node, &std::pair<int, int>::first);
                last = static_cast<std::size_t>(found - counts.begin());
                if (found == counts.end()) counts.emplace_back(node, 0);
            }
            ++counts[last].second;
        }
        nodes = static_cast<int>(counts.size());
        for (const auto& [node, count] : counts) {
            least = std::min(least == 0 ? count : least, count);
            most = std::max(most, count);
            if (node == spec.node_of(members[static_cast<std::size_t>(root)]))
                at_root = count;
        }
    }

    int ranks;
    int nodes = 1;
    int least = 0;  ///< members on a node
    int most = 0;
    int at_root = 0;  ///< members on the root's node

    /// Returns whether all its messages pass links of one kind.
    bool is_even() const { return nodes == 1 || nodes == ranks; }
};

/// A collective of a group whose members are on the nodes of a cluster.
///
/// The group has a ring for each network port that its members have on every node. Every
/// ring passes all members, and enters and leaves each node by a port of its own. The
/// rings share the bytes. Together they have the rate of the node's ports, or the rate of
/// a device's links inside of its node, if that is less.
class CallOnNodes {
    static constexpr double kNever = std::numeric_limits<double>::infinity();

  public:
    CallOnNodes(const CollectiveCall& call, const ClusterSpec& spec,
                const GroupOnNodes& group, int sharers = 0)
        : call_(call),
          spec_(spec),
          group_(group),
          sharers_(sharers),
          bytes_(static_cast<double>(call.count) *
                 static_cast<double>(call.element_bytes)) {}

    /// Returns the number of ports that these members of a node have. Other groups may
    /// share the node's ports.
    double ports(int devices) const {
        if (spec_.network_ports == 0) return devices;
        const double share = static_cast<double>(devices) / std::max(devices, sharers_);
        return std::min<double>(devices, spec_.network_ports * share);
    }

    /// Returns the time by one algorithm; infinity if the algorithm cannot carry out the
    /// call.
    double seconds(const CollectiveAlgorithm& algorithm) const {
        switch (algorithm.kind) {
            case CollectiveAlgorithm::Kind::ring:
                return ring(algorithm);
            case CollectiveAlgorithm::Kind::tree:
                return call_.verb == Verb::all_reduce && group_.nodes > 1
                           ? tree(algorithm)
                           : kNever;
            case CollectiveAlgorithm::Kind::in_switch:
                return call_.verb == Verb::all_reduce && group_.most > 1
                           ? in_switch(algorithm)
                           : kNever;
            case CollectiveAlgorithm::Kind::pairs:
                return pairs(algorithm);
        }
        return kNever;
    }

    /// Returns whether its messages between nodes have less than a port each, or share
    /// the lines between switches.
    bool is_shared() const {
        return group_.nodes > 1 &&
               (ports(group_.least) < group_.least ||
                (spec_.nodes_per_switch > 0 && group_.nodes > spec_.nodes_per_switch));
    }

    struct Choice {
        double seconds = kNever;
        const CollectiveAlgorithm* by = nullptr;  ///< null if none has the verb
    };
    /// Returns the fastest of these algorithms.
    Choice fastest(const std::vector<CollectiveAlgorithm>& algorithms) const {
        Choice best;
        for (const CollectiveAlgorithm& algorithm : algorithms)
            if (const double time = seconds(algorithm); time < best.seconds)
                best = {time, &algorithm};
        return best;
    }

  private:
    double ring(const CollectiveAlgorithm& algorithm) const {
        const int n = group_.ranks;
        switch (call_.verb) {
            case Verb::all_reduce:
                return algorithm.base_seconds +
                       2 * (hops(algorithm) + (n - 1) * spread(bytes_ / n, algorithm));
            case Verb::all_gather:
            case Verb::reduce_scatter:
                return algorithm.base_seconds + hops(algorithm) +
                       (n - 1) * spread(bytes_, algorithm);
            case Verb::broadcast:
            case Verb::reduce:
                return algorithm.base_seconds + hops(algorithm) +
                       spread(bytes_, algorithm);
            case Verb::barrier:
                return algorithm.base_seconds +
                       ceil_log2(n) * (group_.nodes > 1 ? algorithm.between_seconds
                                                        : algorithm.inside_seconds);
            default:
                return kNever;
        }
    }
    /// Returns the latencies of n - 1 hops. The last chunk passes every boundary between
    /// nodes.
    double hops(const CollectiveAlgorithm& algorithm) const {
        const int all = group_.ranks - 1;
        const int between = group_.nodes == 1 ? 0 : std::min(group_.nodes, all);
        return between * algorithm.between_seconds +
               (all - between) * algorithm.inside_seconds;
    }
    /// Returns the time of bytes that all rings together carry over each boundary.
    double spread(double bytes, const CollectiveAlgorithm& algorithm) const {
        return std::max(group_.most > 1 ? inside(bytes, algorithm) : 0,
                        between(bytes, algorithm));
    }
    double inside(double bytes, const CollectiveAlgorithm& algorithm) const {
        return over(spec_.inside, bytes, algorithm.inside_efficiency);
    }
    double between(double bytes, const CollectiveAlgorithm& algorithm) const {
        return group_.nodes == 1 ? 0
                                 : over(spec_.between, bytes / ports(group_.least),
                                        algorithm.between_efficiency);
    }
    static double over(const LinkSpec& link, double bytes, double share) {
        return link.bytes_per_second > 0 ? bytes / (link.bytes_per_second * share) : 0;
    }
    /// Returns the time of the bytes that a node sends to nodes of other switches. A ring
    /// or a tree passes each switch once, so only messages between all pairs are slowed.
    double over_switches(double bytes_per_pair,
                         const CollectiveAlgorithm& algorithm) const {
        const int neighbours = std::min(spec_.nodes_per_switch, group_.nodes);
        if (spec_.nodes_per_switch == 0 || group_.nodes <= neighbours) return 0;
        const double pairs = static_cast<double>(group_.least) *
                             (group_.nodes - neighbours) * group_.least;
        return spec_.oversubscription * over(spec_.between,
                                             pairs * bytes_per_pair / ports(group_.least),
                                             algorithm.between_efficiency);
    }

    /// Two binary trees of the nodes, with a chain in each node (Sanders, Speck & Traff
    /// 2009, Two-tree algorithms for full bandwidth broadcast, reduction and scan). Sums
    /// go up and results down, so each port carries all bytes twice.
    double tree(const CollectiveAlgorithm& algorithm) const {
        return algorithm.base_seconds +
               2 * ((group_.most - 1) * algorithm.inside_seconds +
                    ceil_log2(group_.nodes) * algorithm.between_seconds +
                    spread(bytes_, algorithm));
    }

    /// Each device sends its bytes to the switches of its node once, which add them up,
    /// and gets the sum from them. Between nodes there are the two trees; of only two
    /// nodes, each is the root of one, so their ports carry all bytes once.
    double in_switch(const CollectiveAlgorithm& algorithm) const {
        const double far = (group_.nodes > 2 ? 2 : 1) * between(bytes_, algorithm);
        return algorithm.base_seconds +
               2 * (algorithm.inside_seconds +
                    ceil_log2(group_.nodes) * algorithm.between_seconds) +
               std::max(inside(bytes_, algorithm), far);
    }

    /// One message after another. Messages to the same node and to other nodes pass
    /// different ports at the same time.
    double pairs(const CollectiveAlgorithm& algorithm) const {
        int inside = group_.most - 1;
        int between = group_.ranks - group_.least;
        double port = ports(group_.most) / group_.most;
        double crossing = 0;
        if (call_.verb == Verb::gather || call_.verb == Verb::scatter) {
            inside = group_.at_root - 1;
            between = group_.ranks - group_.at_root;
            port = 1;
        } else if (call_.verb != Verb::all_to_all) {
            return kNever;
        } else {
            crossing = over_switches(bytes_, algorithm);
        }
        if (group_.nodes == 1) between = 0;
        const double near =
            inside * (algorithm.inside_seconds +
                      over(spec_.inside, bytes_, algorithm.inside_efficiency));
        const double far =
            between * (algorithm.between_seconds +
                       over(spec_.between, bytes_, algorithm.between_efficiency * port));
        return algorithm.base_seconds + std::max({near, far, crossing});
    }

    const CollectiveCall& call_;
    const ClusterSpec& spec_;
    const GroupOnNodes& group_;
    int sharers_;
    double bytes_;
};

/// Returns an algorithm of a cluster that lists none: each step takes its link's latency.
CollectiveAlgorithm from_links(CollectiveAlgorithm::Kind kind, const ClusterSpec& spec) {
    return {"", kind, 0, spec.inside.alpha_seconds, spec.between.alpha_seconds};
}

}  // namespace

Picoseconds collective_time(const CollectiveCall& call, const ClusterSpec& spec,
                            const std::vector<int>& members, int sharers) {
    using Kind = CollectiveAlgorithm::Kind;
    if (call.ranks == 1 || call.verb == Verb::split) return 0;
    const GroupOnNodes group(spec, members, call.root);
    const CallOnNodes placed(call, spec, group, sharers);
    const auto time_by = [&](const std::vector<CollectiveAlgorithm>& algorithms) {
        double slowest = 1;
        for (const int member : members)
            slowest = std::max(slowest, spec.link_factor(member));
        return slowed(countable_picoseconds(placed.fastest(algorithms).seconds), slowest);
    };
    const Picoseconds known = time_by(spec.algorithms);
    if (known != kUncountable) return known;
    if (!group.is_even() || placed.is_shared())
        return time_by({from_links(Kind::ring, spec), from_links(Kind::tree, spec),
                        from_links(Kind::pairs, spec)});
    const LinkSpec& link = group.nodes == 1 ? spec.inside : spec.between;
    const Picoseconds even = spec.stragglers.empty()
                                 ? time_over(call, link)
                                 : Stragglers(spec, members).time_over(call, link);
    return std::min(even, time_by({from_links(Kind::tree, spec)}));
}

std::string fastest_algorithm(const CollectiveCall& call, const ClusterSpec& spec,
                              const std::vector<int>& members) {
    const GroupOnNodes group(spec, members, call.root);
    const CallOnNodes::Choice best =
        CallOnNodes(call, spec, group).fastest(spec.algorithms);
    return best.by == nullptr ? "" : best.by->name;
}

CollectiveCall call_of_size(Verb verb, std::int64_t bytes, int ranks) {
    const bool whole =
        verb == Verb::all_reduce || verb == Verb::broadcast || verb == Verb::reduce;
    return {verb, whole ? bytes : bytes / ranks, 1, ranks};
}

double bus_factor(Verb verb, int ranks) {
    if (verb == Verb::broadcast || verb == Verb::reduce) return 1;
    return (verb == Verb::all_reduce ? 2.0 : 1.0) * (ranks - 1) / ranks;
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

}  // namespace lockstep

#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "src/comm/operation.hpp"
#include "src/core/function_ref.hpp"
#include "src/cost/cluster_spec.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// The messages and bytes that one rank sends and receives in a collective.
struct CollectiveTraffic {
    std::int64_t messages_sent = 0;
    std::int64_t bytes_sent = 0;
    std::int64_t messages_received = 0;
    std::int64_t bytes_received = 0;
    bool operator==(const CollectiveTraffic&) const = default;
};

/// A collective, with everything that its cost depends on. `count` is counted as in NCCL:
/// see CommOperation::count.
struct CollectiveCall {
    Verb verb;
    std::int64_t count;
    std::int64_t element_bytes;
    int ranks;
    int root = 0;
    bool operator==(const CollectiveCall&) const = default;
};

/// The messages that a rank exchanges with one other rank in a collective.
struct Transfer {
    int peer;
    std::int64_t messages;
    std::int64_t bytes;
    bool sent;  ///< false: received
};

/// Calls tell() with exactly what `rank` exchanges with each other rank, also if chunks
/// are uneven. all_reduce, all_gather and reduce_scatter are rings. broadcast is a
/// pipelined chain from the root, reduce a pipelined chain to the root. gather and
/// scatter send messages directly to or from the root. all_to_all sends messages directly
/// between pairs. barrier is a dissemination. A split moves nothing. Thakur, Rabenseifner
/// & Gropp, "Optimization of collective communication operations in MPICH", 2005.
void for_each_transfer(const CollectiveCall& call, int rank,
                       FunctionRef<void(const Transfer&)> tell);

/// Returns the total that `rank` exchanges with all other ranks.
CollectiveTraffic collective_traffic(const CollectiveCall& call, int rank);

/// Returns a collective's time. Inside a node, or with one device on each node, each step
/// takes its link's alpha + bytes / beta. A group with several devices on each of several
/// nodes has a ring for each network port of a node, and the rings share the bytes; an
/// all_reduce also has a tree over the nodes, and takes the faster one. If the cluster
/// lists algorithms, the fastest of them decides (ClusterSpec::algorithms).
///
/// A straggler slows the messages that it sends or receives. A ring, an all_to_all and a
/// barrier have the pace of the slowest straggler. gather and scatter are one message
/// after another at the root, each at its own pace. A chain (broadcast, reduce) takes the
/// latency of each hop, plus the time of the bytes on the slowest hop. If the cluster
/// lists algorithms, or if links of both kinds are passed, the slowest straggler slows
/// the whole collective. `members` are the ranks in the run.
///
/// Groups that one split has made, such as the lines of a mesh's axis, usually
/// communicate at the same time. They share the ports of a node by their members there:
/// `sharers` is how many members all these groups have on a node, at most; 0 if there is
/// one group.
Picoseconds collective_time(const CollectiveCall& call, const ClusterSpec& spec,
                            const std::vector<int>& members, int sharers = 0);
/// Returns the name of the cluster's algorithm that decides this time; empty if the
/// cluster lists none.
std::string fastest_algorithm(const CollectiveCall& call, const ClusterSpec& spec,
                              const std::vector<int>& members);

/// The collective that nccl-tests runs for a size. `bytes` are those of a rank's largest
/// buffer: the output of all_gather and gather, the input of reduce_scatter and scatter,
/// the buffer of any other verb.
CollectiveCall call_of_size(Verb verb, std::int64_t bytes, int ranks);
/// The factor by which nccl-tests multiplies size / time to get the "bus bandwidth",
/// which a ring needs from each link: 2(n-1)/n for all_reduce, 1 for broadcast and
/// reduce, (n-1)/n for other verbs.
double bus_factor(Verb verb, int ranks);

/// Returns the time of the same collective without bytes.
Picoseconds collective_latency(CollectiveCall call, const ClusterSpec& spec,
                               const std::vector<int>& members);

/// The seconds of an all-reduce of S bytes over n ranks, by algorithm: ring 2(n-1)(alpha
/// + S/(n beta)); recursive doubling lg n (alpha + S/beta); Rabenseifner's halving and
/// doubling 2 lg n alpha + 2(n-1)/n S/beta. If n is no power of two, the latter two need
/// two more steps with the whole buffer.
double ring_all_reduce_seconds(const LinkSpec& link, std::int64_t bytes, int ranks);
double recursive_doubling_seconds(const LinkSpec& link, std::int64_t bytes, int ranks);
double halving_doubling_seconds(const LinkSpec& link, std::int64_t bytes, int ranks);

/// Counts of one verb over one class of link.
struct TrafficCount {
    std::int64_t calls = 0;
    std::int64_t messages_sent = 0;
    std::int64_t bytes_sent = 0;
    std::int64_t messages_received = 0;
    std::int64_t bytes_received = 0;
    bool operator==(const TrafficCount&) const = default;

    /// Adds `other`, multiplied by `times`.
    void add(const TrafficCount& other, std::int64_t times = 1) {
        calls += times * other.calls;
        messages_sent += times * other.messages_sent;
        bytes_sent += times * other.bytes_sent;
        messages_received += times * other.messages_received;
        bytes_received += times * other.bytes_received;
    }
};

/// Two counts: traffic inside a node, then traffic between nodes.
using TrafficByLink = std::array<TrafficCount, 2>;

/// A rank's traffic over one communicator, by verb.
using TrafficByVerb = std::array<TrafficByLink, kVerbs>;

/// Returns whether two ranks of the run are on one node.
using SameNode = FunctionRef<bool(int, int)>;

/// Returns what a member of a communicator exchanges in a collective; `ranks` are the
/// members' ranks in the run. The call itself is counted once, as a call inside a node.
TrafficByLink collective_share(const CollectiveCall& call, int member,
                               const std::vector<int>& ranks, SameNode same_node);

/// Returns collective_share for every member. An all-to-all is counted node by node,
/// since counting its messages would take a step for each pair of members.
std::vector<TrafficByLink> collective_shares(const CollectiveCall& call,
                                             const std::vector<int>& ranks,
                                             const ClusterSpec& spec);

/// Returns the counts of one send, or one recv, of `bytes`.
constexpr TrafficCount message_share(Verb verb, std::int64_t bytes) {
    return verb == Verb::send ? TrafficCount{1, 1, bytes, 0, 0}
                              : TrafficCount{1, 0, 0, 1, bytes};
}

/// Appends a rank's counts over the communicator `group` to its report, verb by verb.
void append_traffic(const std::string& group, const TrafficByVerb& counts,
                    std::vector<Traffic>& traffic);

}  // namespace lockstep

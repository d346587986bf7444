#include "src/cost/collectives.hpp"

#include <algorithm>
#include <bit>

#include "src/comm/chunks.hpp"

namespace lockstep {

namespace {

int ceil_log2(int n) {
    return std::bit_width(static_cast<unsigned>(n - 1));
}
int floor_log2(int n) {
    return std::bit_width(static_cast<unsigned>(n)) - 1;
}

/// A rank that sends all of `count` elements but its chunk `skipped`, in n - 1 messages.
std::int64_t all_but(std::int64_t count, int n, int skipped) {
    return count - chunk(count, n, (skipped % n + n) % n).count;
}

/// The ring's two halves: in reduce-scatter, rank r sends every chunk but its own and
/// receives every one but the next to its left; in all-gather it starts with its own.
CollectiveTraffic reduce_scatter_traffic(std::int64_t count, std::int64_t size, int n,
                                         int rank) {
    return {n - 1, size * all_but(count, n, rank), n - 1,
            size * all_but(count, n, rank - 1)};
}

CollectiveTraffic all_gather_traffic(std::int64_t count, std::int64_t size, int n,
                                     int rank) {
    return {n - 1, size * all_but(count, n, rank + 1), n - 1,
            size * all_but(count, n, rank)};
}

CollectiveTraffic sum(const CollectiveTraffic& a, const CollectiveTraffic& b) {
    return {a.messages_sent + b.messages_sent, a.bytes_sent + b.bytes_sent,
            a.messages_received + b.messages_received,
            a.bytes_received + b.bytes_received};
}

CollectiveTraffic reversed(const CollectiveTraffic& traffic) {
    return {traffic.messages_received, traffic.bytes_received, traffic.messages_sent,
            traffic.bytes_sent};
}

/// The chain root, root + 1, …: each passes the whole on, the last only receives.
CollectiveTraffic broadcast_traffic(std::int64_t bytes, int n, int place) {
    const std::int64_t sends = place < n - 1 ? 1 : 0;
    const std::int64_t receives = place > 0 ? 1 : 0;
    return {sends, sends * bytes, receives, receives * bytes};
}

CollectiveTraffic scatter_traffic(std::int64_t bytes, int n, int place) {
    if (place == 0) return {n - 1, (n - 1) * bytes, 0, 0};
    return {0, 0, 1, bytes};
}

}  // namespace

CollectiveTraffic collective_traffic(const CollectiveCall& call, int rank) {
    const int n = call.ranks;
    if (n == 1) return {};
    const std::int64_t size = call.element_bytes;
    const std::int64_t bytes = call.count * size;
    const int place = (rank - call.root + n) % n;
    switch (call.verb) {
        case Verb::all_reduce:
            return sum(reduce_scatter_traffic(call.count, size, n, rank),
                       all_gather_traffic(call.count, size, n, rank));
        case Verb::all_gather:
            return all_gather_traffic(call.count * n, size, n, rank);
        case Verb::reduce_scatter:
            return reduce_scatter_traffic(call.count * n, size, n, rank);
        case Verb::broadcast:
            return broadcast_traffic(bytes, n, place);
        // The chain of a reduce ends at the root: root + 1 sends first.
        case Verb::reduce:
            return reversed(broadcast_traffic(bytes, n, (n - place) % n));
        case Verb::scatter:
            return scatter_traffic(bytes, n, place);
        case Verb::gather:
            return reversed(scatter_traffic(bytes, n, place));
        case Verb::all_to_all:
            return {n - 1, (n - 1) * bytes, n - 1, (n - 1) * bytes};
        case Verb::barrier:
            return {ceil_log2(n), 0, ceil_log2(n), 0};
        case Verb::split:
        case Verb::send:
        case Verb::recv:
            break;
    }
    return {};
}

namespace {

Picoseconds time_over(const CollectiveCall& call, const LinkSpec& link) {
    const int n = call.ranks;
    const std::int64_t bytes = call.count * call.element_bytes;
    const std::int64_t largest_chunk = (call.count + n - 1) / n * call.element_bytes;
    switch (call.verb) {
        case Verb::all_reduce:
            return 2 * (n - 1) * message_time(link, largest_chunk);
        case Verb::all_gather:
        case Verb::reduce_scatter:
        case Verb::gather:
        case Verb::scatter:
        case Verb::all_to_all:
            return (n - 1) * message_time(link, bytes);
        // Cut fine enough, a pipelined chain pays the latency of every hop and the bytes
        // once.
        case Verb::broadcast:
        case Verb::reduce:
            return (n - 2) * message_time(link, 0) + message_time(link, bytes);
        case Verb::barrier:
            return ceil_log2(n) * message_time(link, 0);
        case Verb::split:
        case Verb::send:
        case Verb::recv:
            break;
    }
    return 0;
}

}  // namespace

Picoseconds collective_time(const CollectiveCall& call, const ClusterSpec& spec,
                            const std::vector<int>& members) {
    if (call.ranks == 1) return 0;
    bool inside = false;
    bool between = false;
    for (std::size_t i = 0; i < members.size(); ++i) {
        const bool same = spec.same_node(members[i], members[(i + 1) % members.size()]);
        (same ? inside : between) = true;
    }
    Picoseconds slowest = 0;
    if (inside) slowest = time_over(call, spec.inside);
    if (between) slowest = std::max(slowest, time_over(call, spec.between));
    return slowest;
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
    const int n = 1 << floor_log2(ranks);
    const double moved = 2.0 * (n - 1) / n * static_cast<double>(bytes);
    return 2 * floor_log2(ranks) * link.alpha_seconds +
           (link.bytes_per_second > 0 ? moved / link.bytes_per_second : 0) +
           folding_seconds(link, bytes, ranks);
}

}  // namespace lockstep

#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <vector>

#include "src/core/function_ref.hpp"
#include "src/cost/cluster_spec.hpp"

namespace lockstep::sim {

struct Posted;

/// A send that has met its recv, on its way from one rank to another.
struct Message {
    Posted* send = nullptr;
    Posted* recv = nullptr;
    int source = 0;
    int destination = 0;
    std::int64_t bytes = 0;
    Picoseconds ready = 0;       ///< when both sides had arrived
    std::uint64_t place = 0;     ///< its index in the group that the source launched
    std::uint64_t sequence = 0;  ///< rank_number of the source's launch
    bool to_host = false;        ///< direction of a copy, which has no recv
};

/// The ports that messages occupy. Each device has one port out and one port in. If a
/// node has fewer network ports than devices, its devices share them. A message occupies
/// all of its ports for alpha + bytes / beta, times the factor of its slower device.
///
/// A port serves messages that are ready and whose other ports are free, in order of
/// (ready time, place in the group, rank, sequence). All four are virtual, and no two
/// messages or copies have the same four, so nothing depends on the host's order. The
/// place is compared before the rank, so that groups whose ranks name their peers in
/// rotation do not block each other.
class Network {
  public:
    Network(const ClusterSpec& spec, int ranks);

    struct Span {
        Picoseconds start;
        Picoseconds end;
    };
    using Deliver = FunctionRef<void(const Message&, Span)>;

    /// Returns whether the way between two ranks has a port that other ranks use too.
    bool is_shared(int source, int destination) const;

    /// Sends a message. No other message may compete for its ports: it occupies the ports
    /// as soon as they are free.
    Span pass(const Message& message);

    /// Puts any message in line: it starts when its turn comes in virtual time.
    void enqueue(const Message& message);

    /// Returns when the next message may start or end; the largest time if no message
    /// waits.
    Picoseconds next_event() const {
        return events_.empty() ? std::numeric_limits<Picoseconds>::max()
                               : events_.front().time;
    }

    /// Advances to the next time at which a message may start, and delivers the messages
    /// that start then. Returns false if no message waits. Call it only when no rank can
    /// add an earlier message.
    bool advance(Deliver deliver);

  private:
    using Slot = std::uint32_t;

    struct Event {
        Picoseconds time;
        std::uint64_t order;  ///< at one time: port releases, then messages
        Slot slot;            ///< the message that becomes ready
        std::int32_t port;    ///< the port that is released; -1 if none is
    };
    struct Way {
        std::array<std::int32_t, 4> ports{};
        int count = 0;
    };
    /// A message that could not start at once, listed at each of its ports.
    struct Waiting {
        Message message;
        Way way;
        bool started = false;
        int listed = 0;
    };
    /// A message in a port's line. `other` is another port that it needs, so that a
    /// message that cannot start is skipped quickly.
    struct InLine {
        Slot slot;
        std::int32_t other;
    };
    struct Port {
        Picoseconds free_at = 0;
        bool release_due = false;
        std::vector<InLine> waiting;  ///< in the order of service
    };

    Way way(const Message& message) const;
    Way way_of_copy(const Message& message) const;
    bool is_free(const Way& way, Picoseconds time) const;
    Span occupy(const Message& message, const Way& way, Picoseconds time);
    void become_ready(Slot slot, Picoseconds time, Deliver deliver);
    void release(std::int32_t at, Picoseconds time, Deliver deliver);
    void list(Slot slot, std::int32_t at, Picoseconds time);
    void unlist(Slot slot);
    void expect_release(std::int32_t at);
    void add_event(const Event& event);
    Port& port(std::int32_t index) { return ports_[index]; }

    const ClusterSpec& spec_;
    int ranks_;
    int network_ports_;  ///< per node; at most its number of devices
    int host_links_;     ///< per node, too
    int first_copy_port_;
    std::vector<Port> ports_;
    std::vector<Event> events_;  ///< a heap
    std::vector<Waiting> slots_;
    std::vector<Slot> free_slots_;
};

}  // namespace lockstep::sim

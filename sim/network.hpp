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
    Picoseconds ready = 0;       ///< both sides were there
    std::uint64_t place = 0;     ///< in the group that the source launched it with
    std::uint64_t sequence = 0;  ///< rank_number of the source's launch
    bool to_host = false;        ///< of a copy between device and host, which has no recv
};

/// The ports that messages occupy: each device has one out and one in; where a node has
/// fewer network ports than devices, devices share those. A message holds all of its
/// ports for alpha + bytes / beta, times the factor of the slower of its devices.
///
/// A port serves what is ready and whose other ports are free, in order of (ready time,
/// place in the group, rank, sequence): of virtual things alone, and no two messages or
/// copies are alike in all of them, so that nothing depends on the host's order. The
/// place comes first so that groups whose ranks name their peers in rotation pass without
/// standing in each other's way.
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

    /// For a message that nothing else can come before: it takes its ports when they are
    /// free.
    Span pass(const Message& message);

    /// For any message: it waits its turn in virtual time.
    void enqueue(const Message& message);

    /// Returns when the next message may start or end; the end of time if none waits.
    Picoseconds next_event() const {
        return events_.empty() ? std::numeric_limits<Picoseconds>::max()
                               : events_.front().time;
    }

    /// Moves on to the next instant at which a message may start, and delivers those that
    /// do. False where none waits. Right only when no rank can add a message of an
    /// earlier time.
    bool advance(Deliver deliver);

  private:
    using Slot = std::uint32_t;

    struct Event {
        Picoseconds time;
        std::uint64_t order;  ///< releases of ports first, by port; then messages
        Slot slot;            ///< the message that becomes ready
        std::int32_t port;    ///< or the port that is released; else -1
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
    /// A message in a port's line, and another port that it needs, to pass it over
    /// quickly.
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
    int network_ports_;  ///< a node's; no more than it has devices
    int host_links_;     ///< likewise
    int first_copy_port_;
    std::vector<Port> ports_;
    std::vector<Event> events_;  ///< a heap
    std::vector<Waiting> slots_;
    std::vector<Slot> free_slots_;
};

}  // namespace lockstep::sim

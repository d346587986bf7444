#include "sim/network.hpp"

#include <algorithm>
#include <tuple>

#include "src/cost/virtual_time.hpp"

namespace lockstep::sim {

namespace {

/// Returns a key of a message's place (23 bits), rank (16) and sequence (24). The key is
/// greater than the key of any release of a port.
std::uint64_t order_of(const Message& message) {
    const std::uint64_t place = std::min<std::uint64_t>(message.place, (1U << 23) - 1);
    return std::uint64_t{1} << 63 | place << 40 |
           static_cast<std::uint64_t>(message.source) << 24 |
           (message.sequence & ((1U << 24) - 1));
}

/// Heaps keep their largest element on top, so the comparison is "comes later".
constexpr auto kEventLater = [](const auto& a, const auto& b) {
    return std::tie(a.time, a.order) > std::tie(b.time, b.order);
};

}  // namespace

Network::Network(const ClusterSpec& spec, int ranks)
    : spec_(spec),
      ranks_(ranks),
      network_ports_(std::min({spec.network_ports, spec.devices_per_node, ranks})),
      host_links_(std::min({spec.host_links, spec.devices_per_node, ranks})) {
    const int nodes = spec.node_of(ranks - 1) + 1;
    first_copy_port_ = 2 * (ranks + nodes * network_ports_);
    const int copy_ports = host_links_ == 0 ? 0 : 2 * (ranks + nodes * host_links_);
    ports_.resize(static_cast<std::size_t>(first_copy_port_) + copy_ports);
}

/// Returns the copy's ports in its direction: one of the device, one of the node's links.
Network::Way Network::way_of_copy(const Message& message) const {
    const int direction = message.to_host ? 0 : 1;
    const int node = spec_.node_of(message.source);
    const int local = message.source % spec_.devices_per_node;
    const int link = ranks_ + node * host_links_ + local % host_links_;
    Way way;
    way.ports[0] = first_copy_port_ + 2 * message.source + direction;
    way.ports[1] = first_copy_port_ + 2 * link + direction;
    way.count = 2;
    return way;
}

bool Network::is_shared(int source, int destination) const {
    return network_ports_ > 0 && !spec_.same_node(source, destination);
}

Network::Way Network::way(const Message& message) const {
    if (message.recv == nullptr) return way_of_copy(message);
    Way way;
    way.ports[0] = 2 * message.source;
    way.ports[1] = 2 * message.destination + 1;
    way.count = 2;
    if (!is_shared(message.source, message.destination)) return way;
    // Devices use their node's network ports in turn.
    const auto network_port = [&](int rank) {
        const int node = spec_.node_of(rank);
        const int local = rank % spec_.devices_per_node;
        return 2 * (ranks_ + node * network_ports_ + local % network_ports_);
    };
    way.ports[2] = network_port(message.source);
    way.ports[3] = network_port(message.destination) + 1;
    way.count = 4;
    return way;
}

bool Network::is_free(const Way& way, Picoseconds time) const {
    for (int i = 0; i < way.count; ++i) {
        const auto port = static_cast<std::size_t>(way.ports[i]);
        if (ports_[port].free_at > time) return false;
    }
    return true;
}

Network::Span Network::occupy(const Message& message, const Way& way, Picoseconds time) {
    const bool is_copy = message.recv == nullptr;
    const LinkSpec& link =
        is_copy ? spec_.host_copy : spec_.link(message.source, message.destination);
    Picoseconds duration = message_time(link, message.bytes);
    if (!is_copy && !spec_.stragglers.empty())
        duration = slowed(duration, std::max(spec_.link_factor(message.source),
                                             spec_.link_factor(message.destination)));
    const Span span{time, time_sum(time, duration)};
    for (int i = 0; i < way.count; ++i) {
        const std::int32_t taken = way.ports[i];
        port(taken).free_at = span.end;
        expect_release(taken);
    }
    return span;
}

Network::Span Network::pass(const Message& message) {
    const Way taken = way(message);
    const Port& out = port(taken.ports[0]);
    const Port& in = port(taken.ports[1]);
    return occupy(message, taken, std::max({message.ready, out.free_at, in.free_at}));
}

void Network::enqueue(const Message& message) {
    if (free_slots_.empty()) {
        free_slots_.push_back(static_cast<Slot>(slots_.size()));
        slots_.emplace_back();
    }
    const Slot slot = free_slots_.back();
    free_slots_.pop_back();
    slots_[slot] = {message, way(message), false, 0};
    add_event({message.ready, order_of(message), slot, -1});
}

bool Network::advance(Deliver deliver) {
    if (events_.empty()) return false;
    const Picoseconds now = events_.front().time;
    while (!events_.empty() && events_.front().time == now) {
        std::pop_heap(events_.begin(), events_.end(), kEventLater);
        const Event event = events_.back();
        events_.pop_back();
        if (event.port >= 0)
            release(event.port, now, deliver);
        else
            become_ready(event.slot, now, deliver);
    }
    return true;
}

void Network::become_ready(Slot slot, Picoseconds time, Deliver deliver) {
    const Waiting& ready = slots_[slot];
    if (is_free(ready.way, time)) {
        const Message message = ready.message;
        free_slots_.push_back(slot);
        deliver(message, occupy(message, ready.way, time));
        return;
    }
    for (int i = 0; i < ready.way.count; ++i)
        list(slot, ready.way.ports[i], time);
}

void Network::list(Slot slot, std::int32_t at, Picoseconds time) {
    const auto comes_later = [&](const InLine& place) {
        const Message& listed = slots_[place.slot].message;
        const Message& added = slots_[slot].message;
        return std::make_tuple(added.ready, order_of(added)) <
               std::make_tuple(listed.ready, order_of(listed));
    };
    std::vector<InLine>& line = port(at).waiting;
    const auto place =
        line.empty() || !comes_later(line.back())
            ? line.end()
            : std::partition_point(line.begin(), line.end(), [&](const InLine& other) {
                  return !comes_later(other);
              });
    const Way& way = slots_[slot].way;
    line.insert(place, {slot, way.ports[0] == at ? way.ports[1] : way.ports[0]});
    ++slots_[slot].listed;
    if (port(at).free_at > time) expect_release(at);
}

void Network::unlist(Slot slot) {
    if (--slots_[slot].listed == 0) free_slots_.push_back(slot);
}

void Network::expect_release(std::int32_t at) {
    Port& busy = port(at);
    if (busy.release_due || busy.waiting.empty()) return;
    busy.release_due = true;
    add_event({busy.free_at, static_cast<std::uint64_t>(at), 0, at});
}

void Network::add_event(const Event& event) {
    events_.push_back(event);
    std::push_heap(events_.begin(), events_.end(), kEventLater);
}

/// Starts the first message in line whose other ports are free too. A message that has
/// already started from another port is dropped from the line. A message whose other port
/// is busy is tried again when that port is released.
void Network::release(std::int32_t at, Picoseconds time, Deliver deliver) {
    Port& released = port(at);
    released.release_due = false;
    if (released.free_at > time) return expect_release(at);
    std::vector<InLine>& line = released.waiting;
    std::size_t kept = 0;
    std::size_t next = 0;
    for (; next < line.size() && released.free_at <= time; ++next) {
        const InLine place = line[next];
        if (port(place.other).free_at > time) {
            line[kept++] = place;
            continue;
        }
        Waiting& candidate = slots_[place.slot];
        if (!candidate.started && !is_free(candidate.way, time)) {
            line[kept++] = place;
            continue;
        }
        if (!candidate.started) {
            candidate.started = true;
            const Message message = candidate.message;
            const Way way = candidate.way;
            deliver(message, occupy(message, way, time));
        }
        unlist(place.slot);
    }
    line.erase(line.begin() + static_cast<std::ptrdiff_t>(kept),
               line.begin() + static_cast<std::ptrdiff_t>(next));
    if (released.free_at > time) expect_release(at);
}

}  // namespace lockstep::sim

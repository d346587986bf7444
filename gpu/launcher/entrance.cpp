#include "gpu/launcher/entrance.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace lockstep::gpu {

namespace {

using namespace std::chrono_literals;

constexpr auto kSilence = 5s;
constexpr size_t kMostStrangers = 4096;

}  // namespace

Entrance::Entrance(const Placement& placement, Descriptor listener)
    : placement_(placement),
      own_(hello_of(placement)),
      listener_(std::move(listener)),
      here_(static_cast<size_t>(placement.size)),
      missing_(placement.size - 1) {
    here_[0] = true;
}

std::vector<Connection*> Entrance::connections() {
    std::vector<Connection*> all;
    for (Stranger& stranger : strangers_)
        all.push_back(stranger.connection.get());
    return all;
}

std::vector<Entrance::Arrival> Entrance::serve(Clock::time_point now) {
    std::vector<Arrival> arrivals;
    accept_all(now);
    for (auto stranger = strangers_.begin(); stranger != strangers_.end();) {
        Connection& connection = *stranger->connection;
        const std::optional<Message> message = connection.next();
        if (!message && connection.open() && now < stranger->due) {
            ++stranger;
            continue;
        }
        try {
            if (!message || message->kind != MessageKind::hello)
                throw ProtocolError("no hello");
            const Hello hello = unpack_hello(*message->body);
            if (const std::string why = objection(hello); !why.empty()) {
                connection.send({MessageKind::refused, why});
            } else {
                connection.accept_bodies_of(std::numeric_limits<uint64_t>::max());
                connection.send(Message(MessageKind::admitted));
                here_[hello.rank] = true;
                --missing_;
                arrivals.push_back(
                    {static_cast<int>(hello.rank), std::move(stranger->connection)});
            }
        } catch (const ProtocolError&) {
            connection.close();
        }
        stranger = strangers_.erase(stranger);
    }
    return arrivals;
}

void Entrance::accept_all(Clock::time_point now) {
    while (listener_.open() && strangers_.size() < kMostStrangers) {
        Descriptor socket = accept_from(listener_);
        if (!socket.open()) return;
        strangers_.push_back(
            {std::make_unique<Connection>(std::move(socket)), now + kSilence});
    }
}

std::string Entrance::objection(const Hello& hello) const {
    const std::string where = "the run that meets at " + placement_.rendezvous.address;
    if (hello.version != own_.version)
        return fmt::format("{} has another version of Lockstep: use the same everywhere",
                           where);
    if (hello.token != own_.token)
        return fmt::format("{} is another run: give each its own LOCKSTEP_RENDEZVOUS",
                           where);
    if (hello.size != own_.size || hello.rank >= own_.size)
        return fmt::format("{} has {} processes, and rank {} of {} came to it", where,
                           own_.size, hello.rank, hello.size);
    if (here_[hello.rank])
        return fmt::format(
            "{} has its rank {} already: another process came with the "
            "same rank, or another run with the same address",
            where, hello.rank);
    return {};
}

Clock::time_point Entrance::next_due() const {
    auto due = Clock::time_point::max();
    for (const Stranger& stranger : strangers_)
        due = std::min(due, stranger.due);
    return due;
}

std::vector<int> Entrance::missing() const {
    std::vector<int> ranks;
    for (size_t rank = 0; rank < here_.size(); ++rank)
        if (!here_[rank]) ranks.push_back(static_cast<int>(rank));
    return ranks;
}

void Entrance::close() {
    listener_.close();
    strangers_.clear();
}

}  // namespace lockstep::gpu

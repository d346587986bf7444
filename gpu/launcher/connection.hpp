#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "gpu/launcher/message.hpp"
#include "gpu/launcher/placement.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::gpu {

using os::Descriptor;

/// Returns a socket that listens at the address. Throws UsageError if that is not
/// possible: the host name is unknown, the host is another machine, or another socket
/// listens there.
Descriptor listen_at(const Address& address);

/// Accepts a waiting connection at a listening socket. Returns a closed descriptor if
/// there is none, or if it comes from another user of this machine.
Descriptor accept_from(const Descriptor& listener);

/// Connects to the address. Returns a closed descriptor if nothing listens there by the
/// deadline; tries at least once. Throws UsageError if the host name is unknown.
Descriptor connect_to(const Address& address, Clock::time_point deadline);

/// Messages over a nonblocking stream socket. Data that do not fit are kept until poll()
/// reports room. The connection closes if the other side closes or breaks the protocol.
class Connection {
  public:
    explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

    bool open() const { return socket_.open(); }
    int number() const { return socket_.number(); }
    /// Returns the events that poll() must wait for.
    short events() const;
    /// Reads and writes as far as the events that poll() returned allow.
    void transfer(short events);

    /// Returns the next complete message, if there is one.
    std::optional<Message> next();
    void send(const Message& message);
    bool flushed() const { return going_.empty(); }
    void close() { socket_.close(); }

    /// Sends a beat, which tells the other side that this process runs. Returns for how
    /// many calls in a row nothing has arrived from the other side. Time in which this
    /// process itself did not run does not count.
    int beat();

    /// Sets the longest body that is accepted. The limit is small until the other side is
    /// known.
    void accept_bodies_of(uint64_t bytes) { longest_ = bytes; }

  private:
    void receive();
    void take(std::string_view bytes);
    void flush();

    Descriptor socket_;
    uint64_t longest_ = 64;
    int silent_beats_ = 0;

    std::string header_;  // of the message that is being received
    std::optional<Header> coming_;
    std::string body_;
    std::deque<Message> come_;

    std::deque<Bytes> going_;
    size_t sent_ = 0;  // sent bytes of going_.front()
};

}  // namespace lockstep::gpu

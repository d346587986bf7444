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

/// A socket that waits at the address. Throws UsageError if the address cannot be: its
/// host has no such name, is another machine, or something else waits there.
Descriptor listen_at(const Address& address);

/// A connection that waits at a listening socket; a closed descriptor if none does, or if
/// it comes from another user of this machine.
Descriptor accept_from(const Descriptor& listener);

/// A connection to whoever waits at the address, or a closed descriptor if nobody has
/// come there by the deadline; tries once at least. Throws UsageError if the host has no
/// such name.
Descriptor connect_to(const Address& address, Clock::time_point deadline);

/// Messages over a stream socket, without waiting: what does not fit is kept until poll()
/// says that it does. Closes itself when the other side has, or talks rubbish.
class Connection {
  public:
    explicit Connection(Descriptor socket) : socket_(std::move(socket)) {}

    bool open() const { return socket_.open(); }
    int number() const { return socket_.number(); }
    /// Returns what poll() is to wait for.
    short events() const;
    /// Does what poll() found possible.
    void transfer(short events);

    /// The next message that is here whole.
    std::optional<Message> next();
    void send(const Message& message);
    bool flushed() const { return going_.empty(); }
    void close() { socket_.close(); }

    /// Says to the other side that this one runs. Returns for how many calls in turn
    /// nothing has come from there: time in which this process did not run itself does
    /// not count.
    int beat();

    /// Bodies longer than this are rubbish. Small until the other side is known.
    void accept_bodies_of(uint64_t bytes) { longest_ = bytes; }

  private:
    void receive();
    void take(std::string_view bytes);
    void flush();

    Descriptor socket_;
    uint64_t longest_ = 64;
    int silent_beats_ = 0;

    std::string header_;  // of the message that is coming
    std::optional<Header> coming_;
    std::string body_;
    std::deque<Message> come_;

    std::deque<Bytes> going_;
    size_t sent_ = 0;  // of the first
};

}  // namespace lockstep::gpu

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

/// Returns a socket that listens at the address, and at no other address of this machine.
/// If a name has several addresses, the socket listens at the first of this machine's, in
/// the order in which connect_to() tries them. Throws UsageError if that is not possible:
/// the host name is unknown, the host is another machine, the address means all addresses
/// or is hidden from the other machines, or another socket listens there.
Descriptor listen_at(const Address& address);

/// Accepts a waiting connection at a listening socket. Returns a closed descriptor if
/// there is none, or if it comes from another user of this machine.
Descriptor accept_from(const Descriptor& listener);

/// Connects to the address. Returns a closed descriptor if nothing listens there by the
/// deadline; tries at least once. Throws UsageError if the host name is unknown.
Descriptor connect_to(const Address& address, Clock::time_point deadline);

/// Messages over a nonblocking stream socket. Data that do not fit are kept until poll()
/// reports room. The connection closes if the other side closes or breaks the protocol.
/// As long as the other side has not proved that it knows the secret, the connection
/// reads the next message only once next() has returned the last one.
class Connection {
  public:
    Connection(Descriptor socket, Peer peer) : socket_(std::move(socket)), peer_(peer) {}

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
    /// Returns the number of messages that the other side has not read yet.
    size_t unsent() const { return going_.size() / 2; }
    /// `breach` says how the other side has broken the protocol, if it has.
    void close(const std::string& breach = {}) {
        if (open()) breach_ = breach;
        socket_.close();
    }
    /// Returns how the other side has broken the protocol; empty if it has not.
    const std::string& breach() const { return breach_; }

    /// Sends a beat, which tells the other side that this process runs. Returns for how
    /// many calls in a row nothing has arrived from the other side. Time in which this
    /// process itself did not run does not count.
    int beat();

    /// From now on, the other side is known to be this peer of a run with `processes`
    /// processes.
    void trust(Peer peer, int processes) {
        peer_ = peer;
        processes_ = processes;
    }

  private:
    void receive();
    /// Returns the number of bytes that the message that is being received lacks.
    size_t wanted() const;
    void take(std::string_view bytes);
    void flush();

    Descriptor socket_;
    Peer peer_;
    int processes_ = 1;
    std::string breach_;
    int silent_beats_ = 0;

    std::string header_;  // of the message that is being received
    std::optional<Header> coming_;
    std::string body_;
    std::deque<Message> come_;

    std::deque<Bytes> going_;  // each message's header, and then its body
    size_t sent_ = 0;          // sent bytes of going_.front()
};

}  // namespace lockstep::gpu

#pragma once

#include <deque>
#include <optional>
#include <string>
#include <utility>

#include "gpu/launcher/message.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::gpu {

/// Messages over a stream socket, without waiting: what does not fit is kept until poll()
/// says that it does. Closes itself when the other side has, or talks rubbish.
class Connection {
  public:
    explicit Connection(os::Descriptor socket) : socket_(std::move(socket)) {}

    bool open() const { return socket_.open(); }
    int number() const { return socket_.number(); }
    /// What poll() is to wait for.
    short events() const;

    /// Takes in what has come, some megabytes at most.
    void receive();
    /// The next message that is here whole.
    std::optional<Message> next();

    void send(Message message);
    /// Passes on what fits now.
    void flush();
    bool flushed() const { return going_.empty(); }
    void close() { socket_.close(); }
    /// Whether anything has come since this was last asked.
    bool heard() { return std::exchange(heard_, false); }

    /// Bodies longer than this are rubbish. Small until the other side is known.
    void accept_bodies_of(uint64_t bytes) { longest_ = bytes; }

  private:
    void take(const char* bytes, size_t count);
    void finish_message();
    size_t send_some(const std::string& bytes, size_t from);

    os::Descriptor socket_;
    uint64_t longest_ = 64;
    bool heard_ = false;

    std::string header_;  // of the message that is coming
    std::optional<Header> coming_;
    std::string body_;
    std::deque<Message> come_;

    struct Going {
        std::string header;
        Bytes body;
        size_t sent = 0;  // of both together
    };
    std::deque<Going> going_;
};

}  // namespace lockstep::gpu

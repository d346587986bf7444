#pragma once

#include <optional>
#include <string>

#include "gpu/launcher/connection.hpp"
#include "tests/gpu/processes.hpp"

namespace lockstep::gpu {

/// A connection to rank 0 on which a test says what it likes.
class RawLine {
  public:
    /// Connects; waits for rank 0 to listen.
    explicit RawLine(const std::string& address);
    /// Takes the other side of a connection that has been accepted.
    explicit RawLine(Descriptor socket, Peer peer) : line_(std::move(socket), peer) {}

    void trust(Peer peer) { line_.trust(peer, 2); }
    void send(const Message& message) { line_.send(message); }
    /// Waits for the next message. Returns nothing if the other side has closed.
    std::optional<Message> hear();
    /// Waits for a message of this kind, or for the end.
    void skip_to(MessageKind kind);
    /// Says hello, and returns the challenge. Throws if there is none.
    Nonce greet(const Hello& hello);
    /// Says hello and proves that it knows the secret. Returns why it is refused; empty
    /// if it is admitted. Throws if there is no verdict.
    std::string enter(const Hello& hello, const std::string& secret = kTestSecret);

  private:
    Connection line_;
};

}  // namespace lockstep::gpu

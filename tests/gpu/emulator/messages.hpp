#pragma once

#include <cstddef>
#include <deque>
#include <poll.h>
#include <vector>

#include "tests/gpu/emulator/sockets.hpp"

namespace emulated {

/// Messages to and from other ranks. Messages of one peer and direction progress in
/// order; messages of different peers or directions progress at the same time.
class Messages {
  public:
    explicit Messages(int size)
        : sends_(static_cast<std::size_t>(size)),
          receives_(static_cast<std::size_t>(size)) {}

    void send(int peer, const char* data, std::size_t bytes);
    void receive(int peer, char* data, std::size_t bytes);

    enum class End { complete, stopped, peer_lost };
    /// Runs until all messages have ended.
    End run(const std::vector<Descriptor>& sockets, const Stop& stop);

  private:
    struct Part {
        char* data;
        std::size_t bytes;
    };
    using Queue = std::deque<Part>;

    static bool advance(Queue& queue, long moved);
    std::vector<pollfd> awaited(const std::vector<Descriptor>& sockets) const;
    bool move(std::size_t peer, int socket, int ready);

    std::vector<Queue> sends_, receives_;  ///< by peer
};

}  // namespace emulated

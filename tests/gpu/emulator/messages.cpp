#include "tests/gpu/emulator/messages.hpp"

#include <cerrno>
#include <poll.h>
#include <sys/socket.h>

namespace emulated {

namespace {

constexpr int kLookAgainMilliseconds = 20;

}  // namespace

void Messages::send(int peer, const char* data, std::size_t bytes) {
    if (bytes > 0)
        sends_[static_cast<std::size_t>(peer)].push_back(
            {const_cast<char*>(data), bytes});
}

void Messages::receive(int peer, char* data, std::size_t bytes) {
    if (bytes > 0) receives_[static_cast<std::size_t>(peer)].push_back({data, bytes});
}

/// False where the peer is lost.
bool Messages::advance(Queue& queue, long moved) {
    if (moved < 0) return errno == EAGAIN || errno == EINTR;
    if (moved == 0) return false;
    Part& part = queue.front();
    part.data += moved;
    part.bytes -= static_cast<std::size_t>(moved);
    if (part.bytes == 0) queue.pop_front();
    return true;
}

Messages::End Messages::run(const std::vector<Descriptor>& sockets, const Stop& stop) {
    for (;;) {
        std::vector<pollfd> polled;
        std::vector<std::size_t> peers;
        for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
            const int events = (sends_[peer].empty() ? 0 : POLLOUT) |
                               (receives_[peer].empty() ? 0 : POLLIN);
            if (events == 0) continue;
            polled.push_back({sockets[peer].number(), static_cast<short>(events), 0});
            peers.push_back(peer);
        }
        if (polled.empty()) return End::complete;
        poll(polled.data(), polled.size(), kLookAgainMilliseconds);
        if (stop()) return End::stopped;
        for (std::size_t i = 0; i < polled.size(); ++i) {
            const int socket = polled[i].fd;
            Queue& out = sends_[peers[i]];
            Queue& in = receives_[peers[i]];
            if (!in.empty() && (polled[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0 &&
                !advance(in,
                         recv(socket, in.front().data, in.front().bytes, MSG_DONTWAIT)))
                return stop() ? End::stopped : End::peer_lost;
            if (!out.empty() && (polled[i].revents & (POLLOUT | POLLERR)) != 0 &&
                !advance(out, ::send(socket, out.front().data, out.front().bytes,
                                     MSG_DONTWAIT | MSG_NOSIGNAL)))
                return stop() ? End::stopped : End::peer_lost;
        }
    }
}

}  // namespace emulated

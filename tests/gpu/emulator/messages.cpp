#include "tests/gpu/emulator/messages.hpp"

#include <algorithm>
#include <cerrno>
#include <sys/socket.h>

namespace emulated {

void Messages::send(int peer, const char* data, std::size_t bytes) {
    if (bytes > 0)
        sends_[static_cast<std::size_t>(peer)].push_back(
            {const_cast<char*>(data), bytes});
}

void Messages::receive(int peer, char* data, std::size_t bytes) {
    if (bytes > 0) receives_[static_cast<std::size_t>(peer)].push_back({data, bytes});
}

/// Notes moved bytes. Returns false if the peer is lost.
bool Messages::advance(Queue& queue, long moved) {
    if (moved < 0) return errno == EAGAIN || errno == EINTR;
    if (moved == 0) return false;
    Part& part = queue.front();
    part.data += moved;
    part.bytes -= static_cast<std::size_t>(moved);
    if (part.bytes == 0) queue.pop_front();
    return true;
}

/// Sends and receives while the socket is ready. Returns false if the peer is lost.
bool Messages::move(std::size_t peer, int socket, int ready) {
    Queue& in = receives_[peer];
    if (!in.empty() && (ready & (POLLIN | POLLHUP | POLLERR)) != 0 &&
        !advance(in, recv(socket, in.front().data, in.front().bytes, MSG_DONTWAIT)))
        return false;
    Queue& out = sends_[peer];
    return out.empty() || (ready & (POLLOUT | POLLERR)) == 0 ||
           advance(out, ::send(socket, out.front().data, out.front().bytes,
                               MSG_DONTWAIT | MSG_NOSIGNAL));
}

/// Returns what to wait for on each peer's socket. If there is nothing to wait for, the
/// socket is -1, and poll() skips it.
std::vector<pollfd> Messages::awaited(const std::vector<Descriptor>& sockets) const {
    std::vector<pollfd> all;
    for (std::size_t peer = 0; peer < sockets.size(); ++peer) {
        const int events =
            (sends_[peer].empty() ? 0 : POLLOUT) | (receives_[peer].empty() ? 0 : POLLIN);
        all.push_back(
            {events == 0 ? -1 : sockets[peer].number(), static_cast<short>(events), 0});
    }
    return all;
}

Messages::End Messages::run(const std::vector<Descriptor>& sockets, const Stop& stop) {
    for (;;) {
        std::vector<pollfd> polled = awaited(sockets);
        if (std::ranges::all_of(polled,
                                [](const pollfd& one) { return one.events == 0; }))
            return End::complete;
        poll(polled.data(), polled.size(), kLookAgainMilliseconds);
        if (stop()) return End::stopped;
        for (std::size_t peer = 0; peer < polled.size(); ++peer)
            if (!move(peer, polled[peer].fd, polled[peer].revents))
                return stop() ? End::stopped : End::peer_lost;
    }
}

}  // namespace emulated

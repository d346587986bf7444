#include "tests/gpu/emulator/sockets.hpp"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>

namespace emulated {

namespace {

/// Names may be longer than addresses, so an address contains the name's hash (FNV-1a).
std::pair<sockaddr_un, socklen_t> address_of(const std::string& name) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char c : name)
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    const int length =
        std::snprintf(address.sun_path + 1, sizeof address.sun_path - 1,
                      "emulated-nccl-%016llx", static_cast<unsigned long long>(hash));
    return {address, static_cast<socklen_t>(offsetof(sockaddr_un, sun_path)) + 1 +
                         static_cast<socklen_t>(length)};
}

Descriptor new_socket() {
    Descriptor made(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!made) throw NcclTrouble(ncclSystemError, "no socket can be made");
    return made;
}

void wait_until_ready(const Descriptor& socket, short events, const Stop& stop) {
    pollfd awaited{socket.number(), events, 0};
    while (poll(&awaited, 1, kLookAgainMilliseconds) <= 0)
        if (stop()) throw NcclTrouble(ncclInternalError, "the communicator was aborted");
}

}  // namespace

Descriptor::~Descriptor() {
    if (number_ >= 0) close(number_);
}

Descriptor listen_as(const std::string& name) {
    Descriptor listener = new_socket();
    const auto [address, length] = address_of(name);
    if (bind(listener.number(), reinterpret_cast<const sockaddr*>(&address), length) != 0)
        throw NcclTrouble(ncclInvalidUsage, "two processes have the same rank: " + name);
    if (listen(listener.number(), 1024) != 0)
        throw NcclTrouble(ncclSystemError, "cannot listen: " + name);
    return listener;
}

Descriptor accept_from(const Descriptor& listener, const Stop& stop) {
    wait_until_ready(listener, POLLIN, stop);
    Descriptor accepted(accept4(listener.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!accepted) throw NcclTrouble(ncclSystemError, "cannot accept a connection");
    return accepted;
}

Descriptor connect_to(const std::string& name, const Stop& stop) {
    const auto [address, length] = address_of(name);
    Descriptor connected = new_socket();
    while (connect(connected.number(), reinterpret_cast<const sockaddr*>(&address),
                   length) != 0) {
        if (stop()) throw NcclTrouble(ncclInternalError, "the communicator was aborted");
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return connected;
}

void send_all(const Descriptor& socket, const void* data, std::size_t bytes,
              const Stop& stop) {
    const char* next = static_cast<const char*>(data);
    while (bytes > 0) {
        wait_until_ready(socket, POLLOUT, stop);
        const ssize_t sent =
            send(socket.number(), next, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0 && errno != EAGAIN && errno != EINTR)
            throw NcclTrouble(ncclRemoteError, "a rank was lost");
        if (sent <= 0) continue;
        next += sent;
        bytes -= static_cast<std::size_t>(sent);
    }
}

void receive_all(const Descriptor& socket, void* data, std::size_t bytes,
                 const Stop& stop) {
    char* next = static_cast<char*>(data);
    while (bytes > 0) {
        wait_until_ready(socket, POLLIN, stop);
        const ssize_t got = recv(socket.number(), next, bytes, MSG_DONTWAIT);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR))
            throw NcclTrouble(ncclRemoteError, "a rank was lost");
        if (got < 0) continue;
        next += got;
        bytes -= static_cast<std::size_t>(got);
    }
}

}  // namespace emulated

#include "gpu/launcher/socket.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

constexpr int kFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;
constexpr int kBacklog = 1024;

struct UnixAddress {
    sockaddr_un address = {};
    socklen_t bytes = 0;
};

UnixAddress abstract_address(const std::string& name) {
    UnixAddress unix_address;
    unix_address.address.sun_family = AF_UNIX;
    std::memcpy(unix_address.address.sun_path + 1, name.data(), name.size());
    unix_address.bytes =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return unix_address;
}

using Resolved = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

/// Nothing where the name server cannot tell just now.
Resolved resolve(const Address& address, int flags) {
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(address.port);
    const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
    require(error == 0 || error == EAI_AGAIN || (flags & AI_NUMERICHOST),
            "no machine is called \"{}\" ({}): processes cannot meet at {}", address.host,
            gai_strerror(error), address.text());
    return {error == 0 ? found : nullptr, &freeaddrinfo};
}

void set_option(int socket, int level, int name, int value) {
    setsockopt(socket, level, name, &value, sizeof value);
}

/// A machine that vanishes closes no connection: TCP must ask for it.
void set_tcp_options(int socket) {
    set_option(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(socket, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set_option(socket, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(socket, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_option(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, 25'000);
}

bool from_this_user(int socket) {
    ucred peer = {};
    socklen_t bytes = sizeof peer;
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0) return false;
    return peer.uid == getuid();
}

Descriptor new_socket(int family) {
    Descriptor made(socket(family, kFlags, 0));
    if (!made.open())
        throw std::system_error(errno, std::generic_category(), "cannot make a socket");
    return made;
}

void bind_and_listen(const Descriptor& listener, const sockaddr* where, socklen_t bytes,
                     const Address& address) {
    const bool waits = bind(listener.number(), where, bytes) == 0 &&
                       listen(listener.number(), kBacklog) == 0;
    require(waits, [&] {
        const bool taken = errno == EADDRINUSE;
        return fmt::format(
            "rank 0 cannot wait for the other processes at {} ({}): {}", address.text(),
            std::strerror(errno),
            taken
                ? "another program does; set LOCKSTEP_RENDEZVOUS=host:port to a free port"
                : "it must be an address of rank 0's machine; set "
                  "LOCKSTEP_RENDEZVOUS=host:port to one");
    });
}

/// An address in digits, or localhost, as it is; at a name, all addresses of this
/// machine: which of them a name means differs between machines.
Descriptor listen_tcp(const Address& address) {
    const bool local = address.host == "localhost";
    const Address digits = {"", local ? "127.0.0.1" : address.host, address.port};
    Resolved where = resolve(digits, AI_NUMERICHOST);
    for (const char* any : {"::", "0.0.0.0"}) {
        if (!where) where = resolve({"", any, address.port}, AI_NUMERICHOST);
        if (!Descriptor(socket(where->ai_family, kFlags, 0)).open()) where.reset();
    }
    if (!where) throw std::system_error(errno, std::generic_category(), "no network");
    Descriptor listener = new_socket(where->ai_family);
    set_option(listener.number(), SOL_SOCKET, SO_REUSEADDR, 1);
    if (where->ai_family == AF_INET6)
        set_option(listener.number(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    bind_and_listen(listener, where->ai_addr, where->ai_addrlen, address);
    return listener;
}

/// One attempt; a closed descriptor where nobody answers.
Descriptor try_to_connect(int family, const sockaddr* where, socklen_t bytes,
                          Clock::time_point deadline) {
    Descriptor connection = new_socket(family);
    if (connect(connection.number(), where, bytes) == 0) return connection;
    if (errno != EINPROGRESS) return {};
    // A machine that is starting drops what comes: ask again soon.
    const auto soon = std::min(deadline, Clock::now() + std::chrono::seconds(3));
    pollfd wait = {connection.number(), POLLOUT, 0};
    if (poll(&wait, 1, os::milliseconds_until(soon)) != 1) return {};
    int error = 0;
    socklen_t error_bytes = sizeof error;
    getsockopt(connection.number(), SOL_SOCKET, SO_ERROR, &error, &error_bytes);
    if (error != 0) return {};
    return connection;
}

Descriptor try_all(const Address& address, Clock::time_point deadline) {
    if (!address.unix_name.empty()) {
        const UnixAddress where = abstract_address(address.unix_name);
        Descriptor connection =
            try_to_connect(AF_UNIX, reinterpret_cast<const sockaddr*>(&where.address),
                           where.bytes, deadline);
        if (connection.open() && from_this_user(connection.number())) return connection;
        return {};
    }
    const Resolved resolved = resolve(address, 0);
    for (const addrinfo* where = resolved.get(); where; where = where->ai_next) {
        Descriptor connection =
            try_to_connect(where->ai_family, where->ai_addr, where->ai_addrlen, deadline);
        if (!connection.open()) continue;
        set_tcp_options(connection.number());
        return connection;
    }
    return {};
}

}  // namespace

Descriptor listen_at(const Address& address) {
    if (address.unix_name.empty()) return listen_tcp(address);
    const UnixAddress where = abstract_address(address.unix_name);
    Descriptor listener = new_socket(AF_UNIX);
    bind_and_listen(listener, reinterpret_cast<const sockaddr*>(&where.address),
                    where.bytes, address);
    return listener;
}

Descriptor accept_from(const Descriptor& listener) {
    sockaddr_storage from = {};
    socklen_t bytes = sizeof from;
    Descriptor connection(accept4(listener.number(), reinterpret_cast<sockaddr*>(&from),
                                  &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.open()) return {};
    if (from.ss_family != AF_UNIX)
        set_tcp_options(connection.number());
    else if (!from_this_user(connection.number()))
        return {};
    return connection;
}

Descriptor connect_to(const Address& address, Clock::time_point deadline) {
    auto pause = std::chrono::milliseconds(5);
    for (;;) {
        Descriptor connection = try_all(address, deadline);
        if (connection.open() || Clock::now() + pause >= deadline) return connection;
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, std::chrono::milliseconds(250));
    }
}

}  // namespace lockstep::gpu

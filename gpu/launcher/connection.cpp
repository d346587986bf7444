#include "gpu/launcher/connection.hpp"

#include <algorithm>
#include <array>
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
constexpr size_t kReadBytes = size_t{256} * 1024;
constexpr int kReadsAtOnce = 16;
constexpr uint64_t kReservedBytes = 1 << 20;  // at most, before a body arrives

/// An address in the system's form.
struct SocketAddress {
    sockaddr_storage storage = {};
    socklen_t bytes = 0;

    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
    int family() const { return storage.ss_family; }
    std::uint32_t ipv4() const {
        return ntohl(reinterpret_cast<const sockaddr_in*>(&storage)->sin_addr.s_addr);
    }
    const in6_addr* ipv6() const {
        return &reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_addr;
    }
};

SocketAddress abstract_address(const std::string& name) {
    sockaddr_un where = {};
    where.sun_family = AF_UNIX;
    std::memcpy(where.sun_path + 1, name.data(), name.size());
    SocketAddress address;
    std::memcpy(&address.storage, &where, sizeof where);
    address.bytes =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    return address;
}

/// Returns true if only this machine reaches the address.
bool is_loopback(const SocketAddress& where) {
    if (where.family() == AF_INET6) return IN6_IS_ADDR_LOOPBACK(where.ipv6());
    return where.family() == AF_INET && where.ipv4() >> 24 == IN_LOOPBACKNET;
}

/// Returns true if the address means every address of this machine.
bool is_wildcard(const SocketAddress& where) {
    if (where.family() == AF_INET6) return IN6_IS_ADDR_UNSPECIFIED(where.ipv6());
    return where.family() == AF_INET && where.ipv4() == INADDR_ANY;
}

/// Returns the addresses of the host, IPv4 first, so that all processes prefer the same.
/// If several machines meet there, addresses that only this machine reaches are last.
/// Returns nothing if the name server cannot answer now.
std::vector<SocketAddress> resolve(const Address& address, int flags) {
    if (!address.unix_name.empty()) return {abstract_address(address.unix_name)};
    addrinfo hints = {};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(address.port);
    const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
    require(error == 0 || error == EAI_AGAIN || (flags & AI_NUMERICHOST),
            "no machine is called \"{}\" ({}): processes cannot meet at {}", address.host,
            gai_strerror(error), address.text());
    std::vector<SocketAddress> all;
    for (const addrinfo* one = error == 0 ? found : nullptr; one; one = one->ai_next) {
        std::memcpy(&all.emplace_back().storage, one->ai_addr, one->ai_addrlen);
        all.back().bytes = one->ai_addrlen;
    }
    if (error == 0) freeaddrinfo(found);
    std::stable_partition(all.begin(), all.end(), [](const SocketAddress& where) {
        return where.family() == AF_INET;
    });
    if (address.spread)
        std::stable_partition(all.begin(), all.end(), [](const SocketAddress& where) {
            return !is_loopback(where);
        });
    return all;
}

void set_option(const Descriptor& socket, int level, int name, int value) {
    setsockopt(socket.number(), level, name, &value, sizeof value);
}

bool from_this_user(const Descriptor& socket) {
    ucred peer = {};
    socklen_t bytes = sizeof peer;
    return getsockopt(socket.number(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 &&
           peer.uid == getuid();
}

/// Makes a connection ready for messages, or closes a local connection to another user.
Descriptor admitted(Descriptor connection, int family) {
    if (family == AF_UNIX)
        return from_this_user(connection) ? std::move(connection) : Descriptor();
    set_option(connection, IPPROTO_TCP, TCP_NODELAY, 1);
    // A machine that vanishes does not close its connections, so let TCP probe them.
    set_option(connection, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(connection, IPPROTO_TCP, TCP_KEEPIDLE, 10);
    set_option(connection, IPPROTO_TCP, TCP_KEEPINTVL, 5);
    set_option(connection, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_option(connection, IPPROTO_TCP, TCP_USER_TIMEOUT, 25'000);
    return connection;
}

void require_reachable(const SocketAddress& where, const Address& address) {
    require(!is_wildcard(where),
            "rank 0 cannot listen for the other processes at {}, which means every "
            "address of its machine: name the one at which the others find it",
            address.text());
    // Debian's /etc/hosts gives a machine's own name the address 127.0.1.1.
    const bool hidden = address.spread && is_loopback(where) &&
                        address.host != "localhost" &&
                        resolve(address, AI_NUMERICHOST).empty();
    require(!hidden,
            "on rank 0's machine, {} is an address that other machines cannot reach (see "
            "/etc/hosts): set LOCKSTEP_RENDEZVOUS=host:port with one that they can reach",
            address.host);
}

/// Returns false if that is not possible; errno says why.
bool bind_and_listen(const Descriptor& listener, const SocketAddress& where) {
    set_option(listener, SOL_SOCKET, SO_REUSEADDR, 1);
    return bind(listener.number(), where.get(), where.bytes) == 0 &&
           listen(listener.number(), kBacklog) == 0;
}

/// Tries once; returns a closed descriptor if nothing answers.
Descriptor try_to_connect(const SocketAddress& where, Clock::time_point deadline) {
    Descriptor connection(socket(where.family(), kFlags, 0));
    if (!connection.open())
        throw std::system_error(errno, std::generic_category(), "cannot make a socket");
    if (connect(connection.number(), where.get(), where.bytes) != 0) {
        if (errno != EINPROGRESS) return {};
        // A machine that is starting drops packets, so ask again soon.
        const auto soon = std::min(deadline, Clock::now() + std::chrono::seconds(3));
        pollfd wait = {connection.number(), POLLOUT, 0};
        if (poll(&wait, 1, os::milliseconds_until(soon)) != 1) return {};
        int error = 0;
        socklen_t bytes = sizeof error;
        getsockopt(connection.number(), SOL_SOCKET, SO_ERROR, &error, &bytes);
        if (error != 0) return {};
    }
    return admitted(std::move(connection), where.family());
}

}  // namespace

Descriptor listen_at(const Address& address) {
    errno = EADDRNOTAVAIL;
    for (const SocketAddress& where : resolve(address, 0)) {
        require_reachable(where, address);
        Descriptor listener(socket(where.family(), kFlags, 0));
        if (listener.open() && bind_and_listen(listener, where)) return listener;
        if (errno == EADDRINUSE) break;
    }
    const int error = errno;
    throw UsageError(fmt::format(
        "rank 0 cannot listen for the other processes at {} ({}): {}", address.text(),
        std::strerror(error),
        error == EADDRINUSE ? "another program listens there; set "
                              "LOCKSTEP_RENDEZVOUS=host:port to a free port"
                            : "it must be an address of rank 0's machine; set "
                              "LOCKSTEP_RENDEZVOUS=host:port to one"));
}

Descriptor accept_from(const Descriptor& listener) {
    SocketAddress from;
    from.bytes = sizeof from.storage;
    Descriptor connection(accept4(listener.number(),
                                  reinterpret_cast<sockaddr*>(&from.storage), &from.bytes,
                                  SOCK_CLOEXEC | SOCK_NONBLOCK));
    return connection.open() ? admitted(std::move(connection), from.family())
                             : Descriptor();
}

Descriptor connect_to(const Address& address, Clock::time_point deadline) {
    auto pause = std::chrono::milliseconds(5);
    for (;;) {
        for (const SocketAddress& where : resolve(address, 0))
            if (Descriptor connection = try_to_connect(where, deadline);
                connection.open())
                return connection;
        if (Clock::now() + pause >= deadline) return {};
        std::this_thread::sleep_for(pause);
        pause = std::min(2 * pause, std::chrono::milliseconds(250));
    }
}

short Connection::events() const {
    return static_cast<short>(going_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void Connection::transfer(short events) {
    if (events & POLLOUT) flush();
    if (events & ~POLLOUT) receive();
}

/// Reads what has arrived, some megabytes at most, and never beyond a message's end.
void Connection::receive() {
    const bool unproved = peer_ == Peer::stranger || peer_ == Peer::host;
    std::array<char, kReadBytes> buffer;
    for (int reads = 0; open() && reads < kReadsAtOnce; ++reads) {
        if (unproved && !come_.empty()) return;
        const ssize_t got =
            recv(number(), buffer.data(), std::min(buffer.size(), wanted()), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) return close();
        silent_beats_ = -1;
        try {
            take({buffer.data(), static_cast<size_t>(got)});
        } catch (const ProtocolError& error) {
            return close(error.what());
        }
    }
}

size_t Connection::wanted() const {
    return coming_ ? coming_->body_bytes - body_.size() : kHeaderBytes - header_.size();
}

void Connection::take(std::string_view bytes) {
    (coming_ ? body_ : header_).append(bytes);
    if (!coming_ && wanted() == 0) {
        coming_ = read_header(header_);
        require_expected(*coming_, peer_, processes_);
        body_.reserve(std::min(coming_->body_bytes, kReservedBytes));
    }
    if (!coming_ || wanted() > 0) return;
    come_.emplace_back(coming_->kind, std::move(body_), coming_->sequence);
    coming_.reset();
    header_.clear();
    body_.clear();
}

std::optional<Message> Connection::next() {
    if (come_.empty()) return std::nullopt;
    Message message = std::move(come_.front());
    come_.pop_front();
    return message;
}

void Connection::send(const Message& message) {
    if (!open()) return;
    going_.push_back(std::make_shared<const std::string>(header_bytes(message)));
    going_.push_back(message.body);
    flush();
}

/// Sends what fits now.
void Connection::flush() {
    while (open() && !going_.empty()) {
        const std::string& bytes = *going_.front();
        const ssize_t sent =
            ::send(number(), bytes.data() + sent_, bytes.size() - sent_, MSG_NOSIGNAL);
        if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (sent < 0) {
            // There may still be data from before the other side closed; receive() finds
            // the end.
            if (errno != EPIPE && errno != ECONNRESET) close();
            going_.clear();
            sent_ = 0;
            return;
        }
        sent_ += static_cast<size_t>(sent);
        if (sent_ < bytes.size()) continue;
        going_.pop_front();
        sent_ = 0;
    }
}

int Connection::beat() {
    if (flushed()) send(MessageKind::beat);
    return ++silent_beats_;
}

}  // namespace lockstep::gpu

#include "gpu/launcher/connection.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <poll.h>
#include <sys/socket.h>

namespace lockstep::gpu {

namespace {

constexpr size_t kReadBytes = 256 * 1024;
constexpr int kReadsAtOnce = 16;
constexpr uint64_t kReservedBytes = 256 << 20;  // for a body, before it comes

}  // namespace

short Connection::events() const {
    return static_cast<short>(going_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void Connection::receive() {
    std::array<char, kReadBytes> buffer;
    for (int reads = 0; open() && reads < kReadsAtOnce; ++reads) {
        const ssize_t got = recv(number(), buffer.data(), buffer.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
        if (got <= 0) return close();
        heard_ = true;
        try {
            take(buffer.data(), static_cast<size_t>(got));
        } catch (const ProtocolError&) {
            return close();
        }
    }
}

void Connection::take(const char* bytes, size_t count) {
    while (count > 0) {
        std::string& part = coming_ ? body_ : header_;
        const size_t whole = coming_ ? coming_->body_bytes : kHeaderBytes;
        const size_t taken = std::min(count, whole - part.size());
        part.append(bytes, taken);
        bytes += taken;
        count -= taken;
        if (!coming_ && header_.size() == kHeaderBytes) {
            coming_ = read_header(header_);
            if (coming_->body_bytes > longest_)
                throw ProtocolError("a message is too long");
            body_.reserve(std::min(coming_->body_bytes, kReservedBytes));
        }
        if (coming_ && body_.size() == coming_->body_bytes) finish_message();
    }
}

void Connection::finish_message() {
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

void Connection::send(Message message) {
    if (!open()) return;
    going_.push_back({header_bytes(message), std::move(message.body)});
    flush();
}

void Connection::flush() {
    while (open() && !going_.empty()) {
        Going& message = going_.front();
        const size_t header = message.header.size();
        const size_t sent = message.sent < header
                                ? send_some(message.header, message.sent)
                                : send_some(*message.body, message.sent - header);
        message.sent += sent;
        if (message.sent == header + message.body->size())
            going_.pop_front();
        else if (sent == 0)
            return;
    }
    if (!open()) going_.clear();
}

size_t Connection::send_some(const std::string& bytes, size_t from) {
    const ssize_t sent =
        ::send(number(), bytes.data() + from, bytes.size() - from, MSG_NOSIGNAL);
    if (sent >= 0) return static_cast<size_t>(sent);
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return 0;
    // What it has sent before it closed may still be read: receive() finds the end.
    if (errno == EPIPE || errno == ECONNRESET) return bytes.size() - from;
    close();
    return 0;
}

}  // namespace lockstep::gpu

#include "lessons/grader/remote/frames.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>

namespace lockstep::lessons {

bool Frames::ready(short events, Clock::time_point deadline) {
    while (true) {
        pollfd watched{descriptor_, events, 0};
        const int count = ::poll(&watched, 1, os::milliseconds_until(deadline));
        if (count > 0) return true;
        if (count < 0 && errno == EINTR) continue;
        end_ = count == 0 ? End::late : End::gone;
        return false;
    }
}

bool Frames::send(std::string_view message, Clock::time_point deadline) {
    const auto length = static_cast<std::uint64_t>(message.size());
    unsent_.append(reinterpret_cast<const char*>(&length), sizeof length);
    unsent_ += message;
    return go_on_sending(deadline);
}

bool Frames::go_on_sending(Clock::time_point deadline) {
    std::size_t sent = 0;
    bool is_open = true;
    while (is_open && sent < unsent_.size()) {
        const ssize_t count = ::send(descriptor_, unsent_.data() + sent,
                                     unsent_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) {
            sent += static_cast<std::size_t>(count);
        } else if (errno == EAGAIN || errno == EINTR) {
            is_open = ready(POLLOUT, deadline);
        } else {
            end_ = End::gone;
            is_open = false;
        }
    }
    unsent_.erase(0, sent);
    return is_open;
}

/// Reads until the buffer has this number of bytes.
bool Frames::fill(std::size_t bytes, Clock::time_point deadline) {
    constexpr std::size_t kAtOnce = 1 << 16;
    while (buffer_.size() < bytes) {
        const std::size_t before = buffer_.size();
        buffer_.resize(before + kAtOnce);
        const ssize_t count = ::recv(descriptor_, buffer_.data() + before,
                                     buffer_.size() - before, MSG_DONTWAIT);
        buffer_.resize(before + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
        if (count > 0) continue;
        if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
            end_ = End::gone;
            return false;
        }
        if (!ready(POLLIN, deadline)) return false;
    }
    return true;
}

std::optional<std::string> Frames::receive(Clock::time_point deadline) {
    std::uint64_t length = 0;
    if (!fill(sizeof length, deadline)) return std::nullopt;
    std::memcpy(&length, buffer_.data(), sizeof length);
    if (length > kMostBytes) {
        end_ = End::too_long;
        return std::nullopt;
    }
    const std::size_t whole = sizeof length + static_cast<std::size_t>(length);
    if (!fill(whole, deadline)) return std::nullopt;
    std::string message = buffer_.substr(sizeof length, whole - sizeof length);
    buffer_.erase(0, whole);
    return message;
}

}  // namespace lockstep::lessons

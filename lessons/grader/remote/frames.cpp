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
    std::string bytes(reinterpret_cast<const char*>(&length), sizeof length);
    bytes += message;
    std::size_t sent = 0;
    while (sent < bytes.size()) {
        const ssize_t count = ::send(descriptor_, bytes.data() + sent,
                                     bytes.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count > 0) {
            sent += static_cast<std::size_t>(count);
        } else if (errno == EAGAIN || errno == EINTR) {
            if (!ready(POLLOUT, deadline)) return false;
        } else {
            end_ = End::gone;
            return false;
        }
    }
    return true;
}

bool Frames::take(char* data, std::size_t bytes, Clock::time_point deadline) {
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
    if (bytes > 0) std::memcpy(data, buffer_.data(), bytes);
    buffer_.erase(0, bytes);
    return true;
}

std::optional<std::string> Frames::receive(Clock::time_point deadline) {
    std::uint64_t length = 0;
    if (!take(reinterpret_cast<char*>(&length), sizeof length, deadline))
        return std::nullopt;
    if (length > kMostBytes) {
        end_ = End::too_long;
        return std::nullopt;
    }
    std::string message(static_cast<std::size_t>(length), '\0');
    if (!take(message.data(), message.size(), deadline)) return std::nullopt;
    return message;
}

}  // namespace lockstep::lessons

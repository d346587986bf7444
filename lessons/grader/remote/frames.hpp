#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "src/os/deadline.hpp"

namespace lockstep::lessons {

/// One end of the line between the grader and the process of a rank: messages of bytes
/// over a socket, each preceded by its length. The owner keeps the descriptor and closes
/// it.
class Frames {
  public:
    using Clock = os::Clock;

    explicit Frames(int descriptor) : descriptor_(descriptor) {}

    /// Sends a message. Returns false if it is not sent whole by `deadline`, or if the
    /// other side has gone; end() gives the cause. If it is late, go_on_sending() sends
    /// the rest.
    [[nodiscard]] bool send(std::string_view message,
                            Clock::time_point deadline = os::kNever);
    [[nodiscard]] bool go_on_sending(Clock::time_point deadline);

    enum class End { none, gone, late, too_long };
    /// Returns the next message; none if the other side has gone, if time is over, or if
    /// the message is longer than kMostBytes. end() gives the cause. If it is late, the
    /// next call goes on.
    std::optional<std::string> receive(Clock::time_point deadline = os::kNever);
    End end() const { return end_; }

    static constexpr std::size_t kMostBytes = std::size_t{40} << 20;

  private:
    bool ready(short events, Clock::time_point deadline);
    bool fill(std::size_t bytes, Clock::time_point deadline);

    int descriptor_;
    End end_ = End::none;
    std::string buffer_;  ///< bytes that were read but not returned yet
    std::string unsent_;
};

}  // namespace lockstep::lessons

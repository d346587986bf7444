#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/core/source_line.hpp"

namespace lockstep::sim {

/// The memory of this machine, which holds the numbers of all ranks. What ranks ask for
/// is counted before the system gives it. So a run that does not fit ends with a
/// sentence; otherwise the system would end this process, or another one.
class HostMemory {
  public:
    using Available = std::function<std::int64_t()>;

    /// `available` gives unused kept blocks back to the system, and returns how many more
    /// bytes this process can have.
    HostMemory(int ranks, Available available);

    /// A rank takes `bytes`. If the machine does not have them, takes nothing and throws
    /// MissingError.
    void take(int rank, std::int64_t bytes, SourceLine at) {
        if (bytes > next_look_ - held_ - kept_) look(rank, bytes, at);
        held_ += bytes;
        held_by_[rank] += bytes;
    }
    void give(int rank, std::int64_t bytes) noexcept {
        held_ -= bytes;
        held_by_[rank] -= bytes;
    }
    /// Here devices count the bytes that they keep for later.
    std::int64_t& kept() { return kept_; }

  private:
    void look(int rank, std::int64_t bytes, SourceLine at);
    [[noreturn]] void refuse(int rank, std::int64_t bytes, std::int64_t most,
                             SourceLine at) const;

    Available available_;
    std::vector<std::int64_t> held_by_;
    std::int64_t held_ = 0;
    std::int64_t kept_ = 0;
    std::int64_t limit_ = 0;  ///< of held_; known from the first look on
    std::int64_t next_look_;  ///< look if held_ + kept_ exceeds this; at least held_
};

}  // namespace lockstep::sim

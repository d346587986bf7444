#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/core/source_line.hpp"

namespace lockstep::sim {

/// The memory of this machine, which holds the numbers of all ranks. Bytes that ranks ask
/// for are counted before the system provides them. So a run that does not fit ends with
/// a sentence; otherwise the system would end this process, or another process.
class HostMemory {
  public:
    using Available = std::function<std::int64_t()>;

    /// `available` gives unused kept blocks back to the system, and returns how many more
    /// bytes this process can have.
    HostMemory(int ranks, Available available);

    /// Counts `bytes` for a rank. If the machine does not have them, counts nothing and
    /// throws MissingError.
    void take(int rank, std::int64_t bytes, SourceLine at) {
        if (bytes > next_look_ - held_ - kept_) look(rank, bytes, at);
        held_ += bytes;
        held_by_[rank] += bytes;
    }
    void give(int rank, std::int64_t bytes) noexcept {
        held_ -= bytes;
        held_by_[rank] -= bytes;
    }
    /// The number of bytes that devices keep for later; devices update it.
    std::int64_t& kept() { return kept_; }

  private:
    void look(int rank, std::int64_t bytes, SourceLine at);
    [[noreturn]] void refuse(int rank, std::int64_t bytes, std::int64_t most,
                             SourceLine at) const;

    Available available_;
    std::vector<std::int64_t> held_by_;
    std::int64_t held_ = 0;
    std::int64_t kept_ = 0;
    std::int64_t limit_ = 0;  ///< for held_; 0 before the first look()
    std::int64_t next_look_;  ///< look() before held_ + kept_ exceeds it; at least held_
};

}  // namespace lockstep::sim

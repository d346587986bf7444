#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "src/core/source_line.hpp"

namespace lockstep::sim {

/// The memory of this machine, in which the numbers of all ranks lie. What ranks ask for
/// is counted before it is there, so that a run that cannot fit ends with a sentence, and
/// not with the system ending the process, or another one.
class HostMemory {
  public:
    using Available = std::function<std::int64_t()>;

    /// `available` gives back what devices keep and do not use, and says how many bytes
    /// more this process can have.
    HostMemory(int ranks, Available available);

    /// A rank takes so many bytes. Throws MissingError if the machine has not as many;
    /// nothing is taken then.
    void take(int rank, std::int64_t bytes, SourceLine at) {
        if (bytes > next_look_ - held_ - kept_) look(rank, bytes, at);
        held_ += bytes;
        held_by_[rank] += bytes;
    }
    void give(int rank, std::int64_t bytes) noexcept {
        held_ -= bytes;
        held_by_[rank] -= bytes;
    }
    /// Devices count here what they keep and do not use.
    std::int64_t& kept() { return kept_; }

  private:
    void look(int rank, std::int64_t bytes, SourceLine at);
    [[noreturn]] void refuse(int rank, std::int64_t bytes, std::int64_t most,
                             SourceLine at) const;

    Available available_;
    std::vector<std::int64_t> held_by_;
    std::int64_t held_ = 0;
    std::int64_t kept_ = 0;
    std::int64_t limit_ = 0;  ///< of what is held; known from the first look on
    std::int64_t next_look_;  ///< beyond this, what is kept included; no less than held_
};

}  // namespace lockstep::sim

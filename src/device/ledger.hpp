#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "src/core/tensor.hpp"
#include "src/run/diagnosis.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// A device's capacity, and its memory in use by category: now and at the peak.
class Ledger {
  public:
    /// A capacity of 0 means no limit.
    explicit Ledger(std::int64_t capacity) : capacity_(capacity) {}

    bool fits(std::int64_t bytes) const {
        return capacity_ == 0 || total_ + bytes <= capacity_;
    }
    void add(MemoryCategory category, std::int64_t bytes);
    void remove(MemoryCategory category, std::int64_t bytes) noexcept;

    std::int64_t capacity() const { return capacity_; }
    std::int64_t total() const { return total_; }
    const MemoryReport& report() const { return report_; }

  private:
    std::int64_t capacity_;
    std::int64_t total_ = 0;
    MemoryReport report_;
};

/// A device is full (F30). The sentence says what was asked for and where, how much
/// memory there is, and which line's tensors occupy most of it. The details say how much
/// each line's tensors occupy, since when, and how the memory in use has grown.
class OutOfMemoryError : public FaultError {
  public:
    OutOfMemoryError(Diagnosis diagnosis, std::vector<std::string> held)
        : FaultError(std::move(diagnosis)), held_(std::move(held)) {}

    /// Returns how much each line's tensors occupy, with what the memory was wanted for,
    /// the most first: "24 KiB in 3 tensors of gradients made at zero.cpp:118".
    const std::vector<std::string>& held() const { return held_; }

  private:
    std::vector<std::string> held_;
};

/// Explains that `wanted`, which is in its device's list of live storage, does not fit;
/// `whose` is "rank 3" or "the host of rank 3".
OutOfMemoryError out_of_memory(const Ledger& ledger, const Storage& wanted,
                               const std::string& whose);

/// Explains the same for a GPU, which reports its free memory itself; other programs may
/// use memory, too. If the newest live storage has `wanted_bytes` and no memory yet, the
/// memory was wanted for this storage, otherwise for a communicator or an operation.
OutOfMemoryError out_of_memory(const Device& device, std::int64_t wanted_bytes,
                               std::int64_t free_bytes, std::int64_t total_bytes);

}  // namespace lockstep

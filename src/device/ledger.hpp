#pragma once

#include <cstdint>

#include "src/core/tensor.hpp"
#include "src/run/diagnosis.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// A device's memory by category: now, at the peak, and against its capacity.
class Ledger {
  public:
    /// A capacity of 0 is unlimited.
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

/// A device that is full (F30). The sentence says what was asked for where, what there
/// is, and which line holds most; the details, what every line holds since when, and how
/// what is held has grown.
class OutOfMemoryError : public FaultError {
  public:
    using FaultError::FaultError;
};

/// Explains that `wanted`, which is in its device's list of live storage, does not fit;
/// `whose` is "rank 3" or "the host of rank 3".
OutOfMemoryError out_of_memory(const Ledger& ledger, const Storage& wanted,
                               const std::string& whose);

/// The same where a GPU is full that says itself what it has free; others may hold the
/// rest. The newest of the device's live storage is what was wanted where it has no
/// memory yet, else it is a communicator's or an operation's own.
OutOfMemoryError out_of_memory(const Device& device, std::int64_t wanted_bytes,
                               std::int64_t free_bytes, std::int64_t total_bytes);

}  // namespace lockstep

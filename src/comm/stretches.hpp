#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/operation.hpp"

namespace lockstep {

/// A stretch of memory that operations of a group, one behind the other, read or write.
struct Stretch {
    const Storage* storage;
    std::int64_t begin;
    std::int64_t end;
    bool written;
};

/// What the operations of a group do to memory: add each, in order, then ask. As few
/// stretches as can be seen while one looks at them in order.
class Stretches {
  public:
    void add(const CommOperation& operation, int rank);

    /// Whether something is written that another one reads or writes.
    bool conflict();

  private:
    /// One that begins where its kind's last one ends, or the other way round, makes that
    /// longer: blocks dealt out in the order of ranks are one stretch.
    void add(const Stretch& next);

    std::vector<Stretch> all_;
    /// Of what is only read, and of what is written.
    std::size_t last_[2] = {static_cast<std::size_t>(-1), static_cast<std::size_t>(-1)};
};

}  // namespace lockstep

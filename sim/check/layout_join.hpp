#pragma once

#include <vector>

#include "sim/check/layout.hpp"
#include "src/device/monitor.hpp"

namespace lockstep::sim {

/// What a device operation makes of its operands: add each of them, in order. One without
/// a known past makes the result unknown, unless another is a shard.
class LayoutJoin {
  public:
    explicit LayoutJoin(const DeviceOperation& operation);

    void add(const Tensor& operand, LayoutRanges ranges);
    Layout result() const;

  private:
    void add(const Layout& layout, bool added_to);
    void add_replica(const Layout& layout);
    bool is_product() const;

    const DeviceOperation& operation_;
    std::vector<LayoutRanges> operands_;  ///< the pointers below lead into these
    std::uint64_t identity_;
    bool unknown_;                     ///< something is, or fits no other operand
    Layout varying_;                   ///< of the first shard
    const Layout* replica_ = nullptr;  ///< the first
    bool reduced_ = true;  ///< every replica is, and no constant shard is a factor
    const Layout* sum_ = nullptr;      ///< what is added to, where that is reduced
    const Layout* drifted_ = nullptr;  ///< what is added to, where it has
};

}  // namespace lockstep::sim

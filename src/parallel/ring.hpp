#pragma once

#include "src/core/function_ref.hpp"
#include "src/parallel/arriving.hpp"

namespace lockstep {

/// Ranks in a circle: each rank sends its block to the next rank and receives the
/// previous rank's block. Device and group must outlive the ring.
class Ring {
  public:
    Ring(Device& device, Communicator& group) : device_(device), group_(group) {}

    int size() const { return group_.size(); }
    int rank() const { return group_.rank(); }
    /// Returns the rank whose block arrives here after `hops` hops.
    int origin(int hops) const;

    /// Starts one hop. All ranks must call this, with blocks of the same shape. If there
    /// is only one rank, `block` itself arrives.
    Arriving hand_on(const Tensor& block, SourceLine at = SourceLine::here()) const;

    /// Calls visit(block, rank) with every rank's block, starting with this rank's own.
    /// Makes n - 1 hops: in every visit but the last, the block is sent to the next rank.
    void travel(Tensor block, FunctionRef<void(const Tensor& block, int rank)> visit,
                SourceLine at = SourceLine::here()) const;

  private:
    Device& device_;
    Communicator& group_;
};

}  // namespace lockstep

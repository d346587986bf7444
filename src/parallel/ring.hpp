#pragma once

#include "src/core/function_ref.hpp"
#include "src/parallel/arriving.hpp"

namespace lockstep {

/// Ranks in a circle: each sends its block to the next rank and receives the block of the
/// previous one. Device and group must outlive the ring.
class Ring {
  public:
    Ring(Device& device, Communicator& group) : device_(device), group_(group) {}

    int size() const { return group_.size(); }
    int rank() const { return group_.rank(); }
    /// Returns the rank whose own block is here after `hops` hops.
    int origin(int hops) const;

    /// Starts one hop. All ranks must call this, with blocks of one shape. If there is
    /// only one rank, `block` itself arrives.
    Arriving hand_on(const Tensor& block, SourceLine at = SourceLine::here()) const;

    /// Calls visit(block, rank) with every rank's block, this rank's own first. Makes
    /// n - 1 hops: during every visit but the last, the block is sent to the next rank.
    void travel(Tensor block, FunctionRef<void(const Tensor& block, int rank)> visit,
                SourceLine at = SourceLine::here()) const;

  private:
    Device& device_;
    Communicator& group_;
};

}  // namespace lockstep

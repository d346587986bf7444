#pragma once

#include "src/core/function_ref.hpp"
#include "src/parallel/arriving.hpp"

namespace lockstep {

/// Ranks in a circle: each hands what it has to the next, and gets what the
/// previous one had. Device and group must stay.
class Ring {
  public:
    Ring(Device& device, Communicator& group) : device_(device), group_(group) {}

    int size() const { return group_.size(); }
    int rank() const { return group_.rank(); }
    /// The rank that had at first what is here after `hops` hops.
    int origin(int hops) const;

    /// Starts one hop: all ranks do, with blocks of one shape. If there is
    /// one rank alone, what arrives is `block`.
    Arriving hand_on(const Tensor& block, SourceLine at = SourceLine::here()) const;

    /// Calls visit(block, rank) with every rank's block, the own one first. All but the
    /// last are on their way to the next rank meanwhile: n - 1 hops, each beside a visit.
    void travel(Tensor block, FunctionRef<void(const Tensor& block, int rank)> visit,
                SourceLine at = SourceLine::here()) const;

  private:
    Device& device_;
    Communicator& group_;
};

}  // namespace lockstep

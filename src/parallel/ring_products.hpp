#pragma once

#include "src/parallel/ring.hpp"

namespace lockstep {

/// Returns factor * x y^T of each head, (b, a, s/N, s). x has this rank's rows; y has
/// every rank's rows, which travel around the ring. The result's columns are rank 0's
/// rows of y, then rank 1's, and so on. `own` is this rank's part of y. Sends N-1 times
/// the elements of `own`, in N-1 messages.
Tensor ring_products(Device& device, const Ring& ring, const Heads& x, const Heads& own,
                     double factor, SourceLine at = SourceLine::here());

/// sums += factor * weights (b, a, s/N, s) times every rank's rows of y, in the same way.
void add_ring_sums(Device& device, const Ring& ring, const Heads& sums,
                   const Tensor& weights, const Heads& own, double factor,
                   SourceLine at = SourceLine::here());

}  // namespace lockstep

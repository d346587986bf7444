#pragma once

#include "adapters.hpp"

// Attention over a sequence that lies on n = rank.size() ranks (Liu et al. 2023, Ring
// Attention, 2310.01889, section 3). Scores are multiplied by 1/sqrt(width of a head).
//
// A block is the keys and the values of one rank's tokens. Each rank sends to the next,
// rank.index() + 1 modulo n, and receives from the one before it. With the mask, hops
// that nobody needs may be left out. What goes in stays as it is.

/// a5.2. `own` is what this rank has. Blocks go round the ring, n - 1 hops each; each
/// rank attends with its own queries to the block that it has, while that is on its way
/// to the next rank. Beside `own` and what comes out, two blocks are on a rank at most:
/// that which it attends to and the next.
Attended ring_attention(lockstep::Rank& rank, const Qkv& own, const Sequence& sequence);

/// a5.3. From dy, the gradient of y, those of `own`. `attended` is what a5.2 gave. Blocks
/// go round once more. What ranks contribute to a block's gradients goes round too, added
/// up from rank to rank, until it is with the rank whose block it is. While a rank works
/// on a block, its keys and values and the gradients of the block before are on their
/// way, in one group or in two.
Qkv ring_attention_backward(lockstep::Rank& rank, const Qkv& own,
                            const Attended& attended, const lockstep::Tensor& dy,
                            const Sequence& sequence);

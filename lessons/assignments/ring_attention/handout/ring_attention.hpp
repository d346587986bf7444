#pragma once

#include "adapters.hpp"

// Attention over a sequence that is sharded over n = rank.size() ranks (Liu et al. 2023,
// Ring Attention, 2310.01889, section 3). Scores are multiplied by 1/sqrt(head width).
//
// A block is the keys and the values of one rank's tokens. Each rank sends to the next
// rank, rank.index() + 1 modulo n, and receives from the previous rank. With a causal
// mask, hops that no rank needs may be left out. No function changes its inputs.

/// a5.2. `own` is this rank's part. Blocks go around the ring, n - 1 hops each. Each rank
/// attends with its own queries to the block that it has, while that block is on its way
/// to the next rank. In addition to `own` and the results, a rank holds at most two
/// blocks: the one to which it attends, and the next one.
Attended ring_attention(lockstep::Rank& rank, const Qkv& own, const Sequence& sequence);

/// a5.3. Takes dy, the gradient of y, and returns the gradients of `own`. `attended` is
/// the result of a5.2. Blocks go around once more. A block's gradients go around, too:
/// each rank adds its term and sends them on, until they are back on the block's rank.
/// While a rank works on a block, it sends the block's keys and values to the next rank,
/// and also the previous block's gradients, in one group or in two.
Qkv ring_attention_backward(lockstep::Rank& rank, const Qkv& own,
                            const Attended& attended, const lockstep::Tensor& dy,
                            const Sequence& sequence);

#pragma once

#include "adapters.hpp"

// Attention over a sequence that is sharded over n = rank.size() ranks, with the same
// number of tokens on each, in order. During attention, the ranks shard the heads instead
// (Jacobs et al. 2023, DeepSpeed-Ulysses, 2309.14509, section 3). No function changes its
// inputs.

/// a13.1. Takes (own tokens, batches, columns): `parts` parts of equal width, side by
/// side. Each part's columns are cut into n pieces. Returns (all tokens, batches,
/// columns / n): on rank r, piece r of each part, side by side.
lockstep::Tensor to_heads(lockstep::Rank& rank, const lockstep::Tensor& own_tokens,
                          int parts);
/// a13.1. The inverse of to_heads: returns all columns of this rank's tokens.
lockstep::Tensor to_tokens(lockstep::Rank& rank, const lockstep::Tensor& own_heads,
                           int parts);

/// a13.2. x is (own tokens, batches, 3 h): queries, keys and values. `attention` computes
/// this rank's heads: it maps (all tokens, batches, 3 h / n) to (all tokens, batches,
/// h / n). Returns y of this rank's tokens, (own tokens, batches, h).
lockstep::Tensor ulysses_forward(lockstep::Rank& rank, const lockstep::Tensor& x,
                                 lockstep::Module& attention, lockstep::Saved& saved);
/// a13.3. Takes dy, the gradient of y, and forward's `saved`. Returns the gradient of x.
lockstep::Tensor ulysses_backward(lockstep::Rank& rank, const lockstep::Tensor& dy,
                                  lockstep::Module& attention, lockstep::Saved& saved);

#pragma once

#include "adapters.hpp"

// Attention over a sequence that lies on n = rank.size() ranks, equally many tokens on
// each, in order. For as long as attention lasts, the ranks share out the heads instead
// (Jacobs et al. 2023, DeepSpeed-Ulysses, 2309.14509, section 3). What goes in stays as
// it is.

/// a13.1. Takes (own tokens, batches, columns), of `parts` tensors side by side, each of
/// the same width. Gives (all tokens, batches, columns / n), side by side: of each part
/// the r-th of n pieces of its columns, on rank r.
lockstep::Tensor to_heads(lockstep::Rank& rank, const lockstep::Tensor& own_tokens,
                          int parts);
/// a13.1. The way back: the own tokens of all columns.
lockstep::Tensor to_tokens(lockstep::Rank& rank, const lockstep::Tensor& own_heads,
                           int parts);

/// a13.2. x is (own tokens, batches, 3 h): queries, keys and values. `attention` is that
/// of the own heads: it maps (all tokens, batches, 3 h / n) to (all tokens, batches,
/// h / n). Gives y of the own tokens, (own tokens, batches, h).
lockstep::Tensor ulysses_forward(lockstep::Rank& rank, const lockstep::Tensor& x,
                                 lockstep::Module& attention, lockstep::Saved& saved);
/// a13.3. From dy, the gradient of y, that of x; `saved` is as forward left it.
lockstep::Tensor ulysses_backward(lockstep::Rank& rank, const lockstep::Tensor& dy,
                                  lockstep::Module& attention, lockstep::Saved& saved);

#pragma once

#include "src/text/json.hpp"

namespace lockstep::lessons {

/// What 2, 4 and 8 virtual devices did that shared out a sequence's tokens, in the
/// forward pass of attention: by Ring Attention, by an all-gather and by Ulysses, with
/// and without a causal mask, for each order of tokens and two speeds of links. Says of
/// every device which pairs of tokens it computed when. See `attention.js`.
Json attention_runs();

}  // namespace lockstep::lessons

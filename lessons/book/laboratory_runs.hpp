#pragma once

#include "src/text/json.hpp"

namespace lockstep::lessons {

// The runs on virtual devices that two of the book's laboratories show.

/// Returns a hand-written all-reduce on rings of 2 to 6 devices: the numbers of each
/// device before the first step and after each step, and what each device sent. The
/// program runs in four versions: unchanged; without the wait of one step; without any
/// wait; with a blocking send before the receive. For the last three versions, the result
/// has the checker's diagnoses. See `ring.js`.
Json ring_runs();

/// Returns the forward pass of attention on 2, 4 and 8 devices that divide a sequence's
/// tokens: by Ring Attention, by an all-gather and by Ulysses, with and without a causal
/// mask, for each order of tokens and two speeds of links. Each device has the pairs of
/// tokens that it computed, with their times. See `attention.js`.
Json attention_runs();

}  // namespace lockstep::lessons

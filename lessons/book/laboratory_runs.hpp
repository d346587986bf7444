#pragma once

#include "src/text/json.hpp"

namespace lockstep::lessons {

// The runs of virtual devices that two laboratories of the book show.

/// Returns an all-reduce by hand on rings of 2 to 6 devices: which numbers each device
/// had before the first step and after each one, and what each sent. The program runs as
/// it is, without the wait of one step, without any, and with a send that is waited for
/// before the receive; with these go the checker's diagnoses. See `ring.js`.
Json ring_runs();

/// Returns the forward pass of attention on 2, 4 and 8 devices that share out a
/// sequence's tokens: by Ring Attention, by an all-gather and by Ulysses, with and
/// without a causal mask, for each order of tokens and two speeds of links. Says of every
/// device which pairs of tokens it computed when. See `attention.js`.
Json attention_runs();

}  // namespace lockstep::lessons

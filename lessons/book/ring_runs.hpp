#pragma once

#include "src/text/json.hpp"

namespace lockstep::lessons {

/// What rings of 2 to 6 virtual devices did in an all-reduce by hand: which numbers each
/// device had before the first step and after each one, and what each sent. The program
/// runs as it is, without the wait of one step, without any, and with a send that is
/// waited for before the receive; with these go the checker's diagnoses. See `ring.js`.
Json ring_runs();

}  // namespace lockstep::lessons

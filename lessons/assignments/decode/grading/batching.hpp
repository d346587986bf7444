#pragma once

#include "lessons/grader/judge.hpp"

// a12.3: what a batcher plans.

namespace lockstep::lessons::decode {

/// Asks whether each request gets the tokens that it would get alone.
void judge_batched_tokens(Judge& judge);
/// Asks whether no pass is above its limits.
void judge_limits(Judge& judge);
/// Asks who goes first, and who is sent back.
void judge_order(Judge& judge);
/// Asks for as few passes as the library's batcher takes.
void judge_passes(Judge& judge);
/// Asks whether all pages are free in the end.
void judge_pages(Judge& judge);

}  // namespace lockstep::lessons::decode

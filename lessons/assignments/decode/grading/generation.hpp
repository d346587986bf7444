#pragma once

#include "lessons/grader/judge.hpp"

// a12.1 and a12.2: what generate() and generate_shared() leave.

namespace lockstep::lessons::decode {

/// Says who generates.
enum class Way { alone, shared };

/// Asks for one token after each prompt: the pass of the prompts gives it.
void judge_first(Judge& judge, Way way);
/// Asks for all tokens.
void judge_tokens(Judge& judge, Way way);
/// Asks for the flops of a rank.
void judge_work(Judge& judge, Way way);
/// Asks for the bytes of its cache.
void judge_cache(Judge& judge, Way way);
/// Asks how ranks add up their terms: for messages, and their bytes.
void judge_sums(Judge& judge);

}  // namespace lockstep::lessons::decode

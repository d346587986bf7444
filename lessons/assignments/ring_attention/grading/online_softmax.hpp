#pragma once

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons::ring_attention {

/// Judges a5.1: blocks of keys on the host, absorbed one after another, and in two states
/// that are merged.
void judge_online_softmax(Judge& judge);

}  // namespace lockstep::lessons::ring_attention

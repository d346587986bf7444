#pragma once

#include "lessons/grader/assignment.hpp"

namespace lockstep::lessons {

/// The online softmax on the host; Ring Attention, forward and backward.
Assignment ring_attention_assignment();

}  // namespace lockstep::lessons

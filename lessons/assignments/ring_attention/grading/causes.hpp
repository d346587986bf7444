#pragma once

#include <string>
#include <vector>

#include "lessons/assignments/ring_attention/grading/whole_attention.hpp"

namespace lockstep::lessons::ring_attention {

// Why a run went wrong, as far as what it left tells: a sentence for whoever
// wrote the program, or nothing. What each usual mistake gives is computed, and compared.

/// Each rank left this, of one name.
using Left = std::vector<HostTensor>;

/// Says what y is, which is not right on this rank.
std::string cause_of_y(const SharedSequence& of, const WholeAttention& whole, int rank,
                       const Left& y);

/// Says what "dq", "dk" or "dv" is, which is not right on this rank.
std::string cause_of_gradient(const SharedSequence& of, const WholeAttention& whole,
                              int rank, const std::string& name, const Left& gradient);

}  // namespace lockstep::lessons::ring_attention

#pragma once

#include <string>
#include <vector>

#include "lessons/assignments/ring_attention/grading/whole_attention.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::lessons::ring_attention {

// Why a run went wrong, as far as what it left and sent tells: a sentence for whoever
// wrote the program, or nothing. What each usual mistake gives is computed, and compared.

/// Says that messages go the wrong way round, if they all do.
std::string cause_of_way(const SharedSequence& of, const RunReport& report);

/// What each rank left of one name.
using Left = std::vector<HostTensor>;

/// Says what y is, which is not right on this rank.
std::string cause_of_y(const SharedSequence& of, const WholeAttention& whole, int rank,
                       const Left& y);

/// Says what "dq", "dk" or "dv" is, which is not right on this rank.
std::string cause_of_gradient(const SharedSequence& of, const WholeAttention& whole,
                              int rank, const std::string& name, const Left& gradient);

}  // namespace lockstep::lessons::ring_attention

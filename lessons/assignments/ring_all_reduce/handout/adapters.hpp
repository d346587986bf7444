#pragma once

#include "src/comm/rank.hpp"

// Tests and the grader call only these functions. Your own functions may have any
// signature: adapters.cpp calls them.

namespace adapters {

void reduce_scatter(lockstep::Rank& rank, const lockstep::Tensor& buffer);
void all_gather(lockstep::Rank& rank, const lockstep::Tensor& buffer);
void all_reduce(lockstep::Rank& rank, const lockstep::Tensor& buffer);

}  // namespace adapters

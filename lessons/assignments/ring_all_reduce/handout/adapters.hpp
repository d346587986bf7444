#pragma once

#include "src/comm/rank.hpp"

// All that tests and the grader call. How your own functions are called is up to you:
// adapters.cpp calls them.

namespace adapters {

void reduce_scatter(lockstep::Rank& rank, const lockstep::Tensor& buffer);
void all_gather(lockstep::Rank& rank, const lockstep::Tensor& buffer);
void all_reduce(lockstep::Rank& rank, const lockstep::Tensor& buffer);

}  // namespace adapters

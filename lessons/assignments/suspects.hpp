#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lessons/grader/task_run.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

class Judge;

// Relations that tell what is wrong with a tensor, whichever mistake it was.

/// One tensor, as each rank has it.
using OfRanks = std::vector<HostTensor>;

/// Returns what is said of a tensor that should be the sum over the ranks on each, if an
/// all-reduce is missing, was made once too often, or divided by the number of ranks.
std::string suspected_sum(const OfRanks& left, const HostTensor& expected,
                          double bound = 1e-10);

/// Returns a cause (AskedValues) that says the same of what the reference leaves under a
/// tensor's name, if it leaves the same on all ranks. Both outlive it.
std::function<std::string(const std::string& tensor, const OfRanks& left)> suspected_sums(
    const Judge& judge, const TaskRun& run);

/// Returns the sum of terms, each times its factor; all have one shape, and are f64.
HostTensor weighted_sum(const OfRanks& terms, const std::vector<double>& factors);

}  // namespace lockstep::lessons

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lessons/grader/task_run.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

class Judge;

// Relations between tensors that show what is wrong, whatever the mistake in the program.

/// One tensor on each rank.
using OfRanks = std::vector<HostTensor>;

/// Explains a wrong tensor that should be the ranks' sum on each rank: an all-reduce is
/// missing, or done once too often, or divided by the number of ranks. Empty otherwise.
std::string suspected_sum(const OfRanks& left, const HostTensor& expected,
                          double bound = 1e-10);

/// Returns an AskedValues::cause that calls suspected_sum if the reference's tensor is
/// the same on all ranks. `judge` and `run` must outlive the cause.
std::function<std::string(const std::string& tensor, const OfRanks& left)> suspected_sums(
    const Judge& judge, const TaskRun& run);

/// Returns the sum of the terms, each times its factor. All terms have one shape, in f64.
HostTensor weighted_sum(const OfRanks& terms, const std::vector<double>& factors);

}  // namespace lockstep::lessons

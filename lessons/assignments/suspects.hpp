#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

// A cause is not guessed: what a mistake would leave is computed, and compared with what
// was left.

/// One tensor, as each rank has it.
using OfRanks = std::vector<HostTensor>;

/// A mistake, and what it would leave of a tensor on each rank.
struct Suspect {
    std::string said;
    OfRanks left;
};

/// Returns what is said of the first mistake that would leave just that on every rank;
/// nothing if none would.
std::string suspected(const OfRanks& left, const std::vector<Suspect>& suspects,
                      double bound = 1e-10);

/// Returns whether what ranks left adds up to what each should have.
bool adds_up(const OfRanks& left, const HostTensor& expected, double bound = 1e-10);

/// Returns what is said of a tensor that should be the sum over the ranks on each, if an
/// all-reduce is missing, was made once too often, or divided by the number of ranks.
std::string suspected_sum(const OfRanks& left, const HostTensor& expected,
                          double bound = 1e-10);

/// Returns the sum of terms, each times its factor; all have one shape, and are f64.
HostTensor weighted_sum(const OfRanks& terms, const std::vector<double>& factors);

/// Asks that each rank left what is expected of a tensor: `what(rank)` it is, for
/// sentences. Else `cause` says why, as far as what all ranks left tells; a rank that
/// left none has an empty one.
void ask_of_ranks(Judge& judge, const TaskResult& result, const std::string& tensor,
                  const std::function<std::string(std::size_t)>& what,
                  const OfRanks& expected,
                  const std::function<std::string(const OfRanks&)>& cause,
                  double bound = 1e-10);

/// Judges `then`. If the answer is no, and what another criterion asks has that answer,
/// too, says only where that is said.
void ask_unless_said(Judge& judge, const std::string& id,
                     const std::function<void(Judge&)>& before,
                     const std::function<void(Judge&)>& then);

}  // namespace lockstep::lessons

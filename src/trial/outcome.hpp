#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/report/safetensors.hpp"
#include "src/run/diagnosis.hpp"
#include "src/trial/difference.hpp"

namespace lockstep {

/// Returns the whole tensors that ranks kept under prefix + NAME, by NAME. If the prefix
/// is empty, names with a slash are left out. Throws UsageError as RunReport::whole does,
/// for example if two ranks kept different bits.
NamedTensors kept_under(const RunReport& report, const std::string& prefix);

/// Says what happens if the program makes a mistake.
enum class Mistakes {
    /// A mistake that is found is thrown as FaultError. UsageError is thrown if two ranks
    /// kept different bits of a tensor, and each has the whole tensor.
    thrown,
    /// A mistake that is found is returned as Outcome::stopped. If several ranks have the
    /// whole of a tensor, the first rank's is taken.
    kept
};

/// Returns all tensors that ranks kept, assembled from their parts, by their full names.
NamedTensors all_kept(const RunReport& report, Mistakes mistakes = Mistakes::kept);

/// Returns the tensors whose names begin with the prefix, and removes the prefix.
NamedTensors named_under(const NamedTensors& tensors, const std::string& prefix);

/// Returns the loss of each step: the sum of what ranks kept in their series "loss".
std::vector<double> losses_of(const RunReport& report);

/// The result of a run, on any number of ranks, so that two runs can be compared.
struct Outcome {
    RunReport report;
    /// All tensors that ranks kept, assembled from their parts, and the losses: "loss/0"
    /// is the loss of the first step, shape (1).
    NamedTensors results;
    std::optional<Diagnosis>
        stopped;  ///< the mistake that ended the run, if any; then there are no results

    /// The mistake's class, "F23"; empty if there was none.
    std::string fault() const { return stopped ? stopped->fault : ""; }
};

/// Runs the program. Rethrows what it throws, except FaultError with Mistakes::kept.
Outcome outcome_of(Cluster& cluster, const Program& program,
                   Mistakes mistakes = Mistakes::thrown);

/// Compares all results. Also throws UsageError if one of the runs was stopped.
Difference difference(const Outcome& got, const Outcome& expected);

}  // namespace lockstep

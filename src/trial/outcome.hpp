#pragma once

#include <optional>
#include <string>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/report/safetensors.hpp"
#include "src/run/diagnosis.hpp"
#include "src/trial/difference.hpp"

namespace lockstep {

/// Returns the wholes of what ranks kept under prefix + NAME, by NAME; what they kept
/// under names with a slash, if the prefix is empty, is left out. Throws UsageError as
/// RunReport::whole does, so also if two ranks kept different bits.
NamedTensors kept_under(const RunReport& report, const std::string& prefix);

/// What becomes of a program's mistakes.
enum class Mistakes {
    /// One that is found is thrown, as FaultError; so is UsageError if two ranks kept
    /// different bits of what both have whole.
    thrown,
    /// One that is found is the outcome. Of what ranks have whole the first one's is
    /// taken.
    kept
};

/// Returns all that ranks kept, by its whole name, put together.
NamedTensors all_kept(const RunReport& report, Mistakes mistakes = Mistakes::kept);

/// Returns those whose names begin with the prefix, without it.
NamedTensors under(const NamedTensors& tensors, const std::string& prefix);

/// Returns the losses of all steps, of the series "loss". Each rank that kept any has a
/// share of them.
std::vector<double> losses_of(const RunReport& report);

/// What a run came to, on however many ranks, so that two runs can be compared.
struct Outcome {
    RunReport report;
    /// All that ranks kept, put together, and the losses: "loss/0" is that of the first
    /// step, (1).
    NamedTensors results;
    std::optional<Diagnosis>
        stopped;  ///< the mistake that ended it; then there are no results

    /// The mistake's class, "F23"; empty if there was none.
    std::string fault() const { return stopped ? stopped->fault : ""; }
};

/// Runs the program, and throws what it throws.
Outcome outcome_of(Cluster& cluster, const Program& program,
                   Mistakes mistakes = Mistakes::thrown);

/// Of all results. Throws UsageError, too, if one of the runs was stopped.
Difference difference(const Outcome& got, const Outcome& expected);

}  // namespace lockstep

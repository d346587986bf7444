#pragma once

#include "sim/check/layout.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

/// F22, or F27 where it was accumulated in between: at `read_at` the operation `reader`
/// uses what was summed a second time.
Diagnosis explain_twice(const Layout& twice, SourceLine read_at, const char* reader);

/// F22: a collective sums shards of what another has summed over the same ranks.
Diagnosis explain_summed_shards(const CollectiveOrigin& first,
                                const CollectiveOrigin& second);

/// F23: replicas of a parameter are updated with gradients that nobody reduced.
Diagnosis explain_drift(const Drift& drift);

}  // namespace lockstep::sim

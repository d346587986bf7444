// A module with sharded weights and its twin on one device, as tasks for the same case.
#pragma once

#include <functional>
#include <memory>

#include "sim/cluster.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel.hpp"
#include "src/trial/case.hpp"
#include "src/trial/training.hpp"
#include "src/trial/values.hpp"
#include "tests/alike.hpp"

namespace lockstep::test {

enum class Regions { replicated, sequence_parallel };

/// Makes the TensorParallel of the ranks.
using MakeRegions =
    std::function<std::unique_ptr<TensorParallel>(Device&, Communicator&)>;
MakeRegions regions(Regions kind);

using MakeAlone = std::function<std::unique_ptr<Module>(const ParameterInit&)>;
using MakeShared =
    std::function<std::unique_ptr<Module>(const ParameterInit&, TensorParallel&)>;

/// One pass through the module, in the dtype of "dy".
Task pass_alone(const MakeAlone& make);
/// The same pass on ranks, which also completes the gradients.
Task pass_shared(const MakeRegions& make_regions, const MakeShared& make,
                 Backward backward = Backward::whole);

/// A cluster of virtual devices for these tests.
std::unique_ptr<Cluster> classroom(int ranks, bool numbers = true,
                                   sim::CheckLevel check = sim::check_level_asked());

}  // namespace lockstep::test

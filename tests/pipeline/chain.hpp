// A chain of small layers. Each layer is one part, on one device or in a pipeline.
#pragma once

#include <memory>
#include <vector>

#include "sim/cluster.hpp"
#include "src/nn/module.hpp"
#include "src/pipeline/pipeline.hpp"
#include "tests/alike.hpp"
#include "tests/message_of.hpp"

namespace lockstep::test {

inline constexpr std::int64_t kChainWidth = 3;
inline constexpr std::int64_t kChainRows = 2;  ///< in a micro-batch

/// Part `part` is tanh(linear(x)); its parameters are "0.weight", "0.bias", ….
std::unique_ptr<Module> make_chain_part(Device& device, int part);

/// Micro-batches (rows, kChainWidth) with different values. A micro-batch's weight is its
/// share of all rows. If `uneven`, micro-batch i has i % 3 more rows.
std::vector<MicroBatch> chain_batches(Device& device, int count, bool uneven = false);

PartBoundary chain_boundary();

// Both functions keep the losses of their runs, and tensors "grad/NAME" and "value/NAME".

/// Runs one step on one device, and keeps its gradients.
Outcome run_chain(int parts, int micro_batches, bool uneven = false);

struct ChainOptions {
    double learning_rate = 0;  ///< 0: optimizer steps do nothing
    int runs = 1;
    bool uneven = false;
    int replicas = 1;      ///< each has the same number of micro-batches
    double decay = 0;      ///< of the average step, to estimate weights
    bool offload = false;  ///< keep activations on the host
    bool tie = true;       ///< sum a part's gradients over its stages
    sim::CheckLevel check = sim::check_level_asked();
};

/// Runs the same chain by a schedule.
Outcome run_chain(const PipelinePlan& plan, const ChainOptions& options = {});

}  // namespace lockstep::test

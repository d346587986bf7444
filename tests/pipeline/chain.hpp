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

/// Micro-batches (rows, kChainWidth). Each has its own values and its share of the loss.
/// If `uneven`, micro-batch i has i % 3 more rows.
std::vector<MicroBatch> chain_batches(Device& device, int count, bool uneven = false);

PartBoundary chain_boundary();

// Each function keeps the losses of its runs, "grad/NAME" and "value/NAME".

/// Runs one step on one device, and keeps its gradients.
Outcome run_chain(int parts, int micro_batches, bool uneven = false);

struct ChainOptions {
    double learning_rate = 0;  ///< 0: optimizer steps do nothing
    int runs = 1;
    bool uneven = false;
    int replicas = 1;      ///< each with the same number of batches
    double decay = 0;      ///< of the average step, which estimates weights
    bool offload = false;  ///< activations wait on the host
    bool tie = true;       ///< sum the copies of a part over its stages
    sim::CheckLevel check = sim::check_level_asked();
};

/// Runs the same chain by a schedule.
Outcome run_chain(const PipelinePlan& plan, const ChainOptions& options = {});

}  // namespace lockstep::test

// A chain of small layers, one for each part, on one device and as a pipeline.
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

/// Batches (rows, kChainWidth): each has other values and its share of the loss. If they
/// are uneven, micro-batch i has i % 3 more rows.
std::vector<MicroBatch> chain_batches(Device& device, int count, bool uneven = false);

PartBoundary chain_boundary();

// Each function keeps losses of runs, "grad/NAME" and "value/NAME".

/// Runs one step on one device; keeps its gradients.
Outcome run_chain(int parts, int micro_batches, bool uneven = false);

struct ChainOptions {
    double learning_rate = 0;  ///< 0: optimizer steps do nothing
    int runs = 1;
    bool uneven = false;
    int replicas = 1;  ///< they train on twice, three times … the schedule's batches
    double decay = 0;  ///< of the average step, by which weights are estimated
    bool offload = false;  ///< activations wait on the host
    bool tie = true;       ///< sum the copies of a part over its stages
    sim::CheckLevel check = sim::check_level_asked();
};

/// Runs the same by a schedule.
Outcome run_chain(const PipelinePlan& plan, const ChainOptions& options = {});

}  // namespace lockstep::test

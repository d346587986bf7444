// A chain of small layers, one a part, on one device and as a pipeline.
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
inline constexpr std::int64_t kChainRows = 2;  ///< of a micro-batch

/// Part `part`: tanh(linear(x)), whose parameters are named "0.weight", "0.bias", ….
std::unique_ptr<Module> make_chain_part(Device& device, int part);

/// (rows, kChainWidth), each micro-batch with other values and its share of the loss.
/// Where they are uneven, micro-batch i has i % 3 rows more.
std::vector<MicroBatch> chain_batches(Device& device, int count, bool uneven = false);

PartBoundary chain_boundary();

// Each keeps losses of runs, "grad/NAME" and "value/NAME".

/// Gradients of one step, on one device.
Outcome run_chain(int parts, int micro_batches, bool uneven = false);

struct ChainOptions {
    double learning_rate = 0;  ///< 0: optimizer steps do nothing
    int runs = 1;
    bool uneven = false;
    int replicas = 1;  ///< that share out twice, three times … the schedule's batches
    double decay = 0;  ///< of the average of steps by which weights are estimated
    bool offload = false;  ///< activations wait on the host
    bool tie = true;       ///< the copies of a part that several stages hold
    sim::CheckLevel check = sim::check_level_asked();
};

/// The same by a schedule.
Outcome run_chain(const PipelinePlan& plan, const ChainOptions& options = {});

}  // namespace lockstep::test

#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/module.hpp"

// Tests and the grader call only these functions, with these types. Your own functions
// may have any signature: adapters.cpp calls them.

/// Some of a rank's rows in a step. They go through the network together.
struct MicroBatch {
    lockstep::Tensor x;        ///< (rows, features), f64; at least one row
    lockstep::Tensor targets;  ///< (rows), i32: the class of each row
    /// The number of rows, divided by the number of all ranks' rows in the step: the
    /// weight of the micro-batch's mean in the mean over all rows.
    double weight;
};
using MicroBatches = std::vector<MicroBatch>;

/// A layer of the network, in f64, on n ranks. The values of its parameters, in the
/// order of module->parameters(), with zeros at the end, are n ranges of k elements.
/// Rank i updates range i.
struct Layer {
    lockstep::Module* module;  ///< has parameters, whose gradients are absent
    /// Stages 1 and 2: all ranges, (n k), of which the parameters' values are views.
    /// Stage 3: only this rank's range, (k). The parameters' values are absent.
    lockstep::Tensor values;
};
/// In the order of forward. The last layer computes the logits (rows, classes).
using Layers = std::vector<Layer>;

struct Training {
    int steps;
    lockstep::AdamWOptions adamw;
};

namespace adapters {

void stage_1(lockstep::Rank& rank, const Layers& layers,
             const MicroBatches& micro_batches, const Training& training);
void stage_2(lockstep::Rank& rank, const Layers& layers,
             const MicroBatches& micro_batches, const Training& training);
void stage_3(lockstep::Rank& rank, const Layers& layers,
             const MicroBatches& micro_batches, const Training& training);

}  // namespace adapters

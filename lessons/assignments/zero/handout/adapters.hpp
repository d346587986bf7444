#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/module.hpp"

// All that tests and the grader call, and what they give. How your own functions are
// called is up to you: adapters.cpp calls them.

/// Some of one rank's rows of a step, which go through the network together.
struct MicroBatch {
    lockstep::Tensor x;        ///< (rows, features), f64; at least one row
    lockstep::Tensor targets;  ///< (rows), i32: of each row, its class
    /// Its rows, divided by the rows of all micro-batches of all ranks in the step: so
    /// much its own mean counts in the mean over all rows.
    double weight;
};
using MicroBatches = std::vector<MicroBatch>;

/// A layer of the network, in f64, on n ranks. Its parameters' values, one parameter
/// behind the other in the order of module->parameters(), and zeros behind the last, are
/// n ranges of k elements: rank i updates range i.
struct Layer {
    lockstep::Module* module;  ///< has parameters, whose gradients are absent
    /// Stages 1 and 2: all ranges, (n k); the parameters' values are views of it.
    /// Stage 3: this rank's range alone, (k); the parameters' values are absent.
    lockstep::Tensor values;
};
/// In the order of forward. The last one gives the logits (rows, classes).
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

#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/module.hpp"

// Tests and the grader call only these functions, with these types. Your own functions
// may have any signature: adapters.cpp calls them.

/// A layer of E experts on n ranks. Each rank holds E / n experts; the first expert of
/// rank r is r E / n. Every rank has N own tokens, as rows of x (N, h), f64. N may differ
/// between ranks, and may be 0.
struct Layer {
    lockstep::Module* gate;  ///< (N, h) to logits (N, E), the same on all ranks
    /// This rank's experts, in order. Each maps (rows, h) to (rows, h).
    std::vector<lockstep::Module*> experts;
    std::int64_t chosen = 1;  ///< k, experts for each token
    /// The maximum number of copies that an expert accepts from all ranks; 0: no limit.
    std::int64_t capacity = 0;
};

/// The experts of N tokens, and the weight of each.
struct Chosen {
    lockstep::Tensor ids;      ///< (N, k), i32
    lockstep::Tensor weights;  ///< (N, k), f64
};

/// The result of a layer's forward and backward: y, and the gradient of x.
struct Passed {
    lockstep::Tensor y;   ///< (N, h)
    lockstep::Tensor dx;  ///< (N, h)
};

namespace adapters {

Chosen choose(lockstep::Rank& rank, const lockstep::Tensor& logits, std::int64_t chosen);
/// Runs forward only. Returns y.
lockstep::Tensor forward(lockstep::Rank& rank, const Layer& layer,
                         const lockstep::Tensor& x);
/// Runs forward, then backward with dy. The modules' gradients exist, and are zero.
Passed pass(lockstep::Rank& rank, const Layer& layer, const lockstep::Tensor& x,
            const lockstep::Tensor& dy);

}  // namespace adapters

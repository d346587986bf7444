#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/module.hpp"

// All that tests and the grader call, and what they give. How your own functions are
// called is up to you: adapters.cpp calls them.

/// A layer of E experts on n ranks, which hold E / n each: rank r those from r E / n on.
/// Every rank has N tokens of its own, as rows of x (N, h), f64; another may have more or
/// fewer, or none.
struct Layer {
    lockstep::Module* gate;  ///< (N, h) to logits (N, E), the same on all ranks
    /// This rank's, in order, each (rows, h) to (rows, h).
    std::vector<lockstep::Module*> experts;
    std::int64_t chosen = 1;  ///< k, experts of a token
    /// The copies that an expert takes at most, of all ranks' tokens; 0: all of them.
    std::int64_t capacity = 0;
};

/// The experts of N tokens, and the weight of each.
struct Chosen {
    lockstep::Tensor ids;      ///< (N, k), i32
    lockstep::Tensor weights;  ///< (N, k), f64
};

/// A layer has gone forward and back: y of x, and the gradient of x.
struct Passed {
    lockstep::Tensor y;   ///< (N, h)
    lockstep::Tensor dx;  ///< (N, h)
};

namespace adapters {

Chosen choose(lockstep::Rank& rank, const lockstep::Tensor& logits, std::int64_t chosen);
/// Forward alone: y.
lockstep::Tensor forward(lockstep::Rank& rank, const Layer& layer,
                         const lockstep::Tensor& x);
/// Forward, then backward of dy. The modules' gradients are there, and zero.
Passed pass(lockstep::Rank& rank, const Layer& layer, const lockstep::Tensor& x,
            const lockstep::Tensor& dy);

}  // namespace adapters

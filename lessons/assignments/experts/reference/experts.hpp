#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "adapters.hpp"
#include "src/nn/module.hpp"

using Counts = std::vector<std::int64_t>;

Chosen choose(lockstep::Device& device, const lockstep::Tensor& logits,
              std::int64_t chosen);

/// What backward needs of forward.
struct Pass {
    lockstep::Saved gate;
    std::deque<lockstep::Saved> experts;
    Chosen chosen;
    lockstep::Tensor places;  ///< of each copy in ids, laid out flat
    lockstep::Tensor tokens;  ///< of each copy
    Counts sent;              ///< copies for each rank
    Counts received;          ///< copies from each rank
    Counts rows;              ///< copies for each of this rank's experts
    /// Where what comes rank by rank lies expert by expert, and back.
    lockstep::Tensor by_expert, by_rank;
    lockstep::Tensor made;     ///< what experts made of the copies
    lockstep::Tensor weights;  ///< of each copy
};

lockstep::Tensor forward(lockstep::Rank& rank, const Layer& layer,
                         const lockstep::Tensor& x, Pass& pass);
lockstep::Tensor backward(lockstep::Rank& rank, const Layer& layer,
                          const lockstep::Tensor& dy, Pass& pass);

#pragma once

#include "adapters.hpp"

// Experts on several ranks (Shazeer et al. 2017, 1701.06538; Lepikhin et al. 2020,
// GShard, 2006.16668).

/// a9.1. Returns each token's k experts with the largest logits (N, E), the largest
/// first. Ties go to the lower number. The weights are the softmax of these k logits.
Chosen choose(lockstep::Device& device, const lockstep::Tensor& logits,
              std::int64_t chosen);

/// The data that forward stores for backward. You choose the members.
struct Pass {};

/// a9.2, and a9.4 if there is a capacity. Returns y (N, h) of x (N, h).
lockstep::Tensor forward(lockstep::Rank& rank, const Layer& layer,
                         const lockstep::Tensor& x, Pass& pass);

/// a9.3. Returns dx (N, h) of dy (N, h). Adds to the modules' parameter gradients.
lockstep::Tensor backward(lockstep::Rank& rank, const Layer& layer,
                          const lockstep::Tensor& dy, Pass& pass);

#pragma once

#include "adapters.hpp"

// Experts on several ranks (Shazeer et al. 2017, 1701.06538; Lepikhin et al. 2020,
// GShard, 2006.16668).

/// a9.1. The k experts of each token with the largest logits (N, E), the largest first;
/// of equal ones the lower number. Their weights are the softmax of these k.
Chosen choose(lockstep::Device& device, const lockstep::Tensor& logits,
              std::int64_t chosen);

/// Forward leaves here what backward needs: yours.
struct Pass {};

/// a9.2, and a9.4 if there is a capacity. y (N, h) of x (N, h).
lockstep::Tensor forward(lockstep::Rank& rank, const Layer& layer,
                         const lockstep::Tensor& x, Pass& pass);

/// a9.3. dx (N, h) of dy (N, h); adds to the gradients of the modules' parameters.
lockstep::Tensor backward(lockstep::Rank& rank, const Layer& layer,
                          const lockstep::Tensor& dy, Pass& pass);

#pragma once

#include <map>
#include <string>

#include "src/comm/rank.hpp"

// Tests and the grader call only these functions. Your own functions may have any
// signature: adapters.cpp calls them.

namespace adapters {

using lockstep::Rank;
using lockstep::Tensor;
/// Tensors by name. An empty tensor, Tensor(), counts as missing.
using Tensors = std::map<std::string, Tensor>;

Tensor column_forward(Rank& rank, const Tensor& x, const Tensor& weight,
                      const Tensor& bias);
/// Returns "d_weight", "d_bias", and "dx" if it is wanted.
Tensors column_backward(Rank& rank, const Tensor& x, const Tensor& weight,
                        const Tensor& dy, bool wants_dx);

Tensor row_forward(Rank& rank, const Tensor& x, const Tensor& weight, const Tensor& bias);
/// Returns "dx", "d_weight", "d_bias".
Tensors row_backward(Rank& rank, const Tensor& x, const Tensor& weight, const Tensor& dy);

/// Takes "weight1", "bias1", "weight2", "bias2". Returns "y", and anything else
/// that mlp_backward needs.
Tensors mlp_forward(Rank& rank, const Tensor& x, const Tensors& mlp);
/// Returns "d_weight1" and so on, and "dx" if it is wanted.
Tensors mlp_backward(Rank& rank, const Tensor& x, const Tensors& mlp,
                     const Tensors& forward, const Tensor& dy, bool wants_dx);

}  // namespace adapters

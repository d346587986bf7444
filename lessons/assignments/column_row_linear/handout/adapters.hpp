#pragma once

#include <map>
#include <string>

#include "src/comm/rank.hpp"

// All that tests and the grader call. How your own functions are called is up to you:
// adapters.cpp calls them.

namespace adapters {

using lockstep::Rank;
using lockstep::Tensor;
/// By name; a tensor that is none (Tensor()) is as good as missing.
using Tensors = std::map<std::string, Tensor>;

Tensor column_forward(Rank& rank, const Tensor& x, const Tensor& weight,
                      const Tensor& bias);
/// "d_weight", "d_bias", and "dx" where it is wanted.
Tensors column_backward(Rank& rank, const Tensor& x, const Tensor& weight,
                        const Tensor& dy, bool wants_dx);

Tensor row_forward(Rank& rank, const Tensor& x, const Tensor& weight, const Tensor& bias);
/// "dx", "d_weight", "d_bias".
Tensors row_backward(Rank& rank, const Tensor& x, const Tensor& weight, const Tensor& dy);

/// Takes "weight1", "bias1", "weight2", "bias2"; returns "y", and for mlp_backward
/// whatever else there is.
Tensors mlp_forward(Rank& rank, const Tensor& x, const Tensors& mlp);
/// "d_weight1" and so on, and "dx" where it is wanted.
Tensors mlp_backward(Rank& rank, const Tensor& x, const Tensors& mlp,
                     const Tensors& forward, const Tensor& dy, bool wants_dx);

}  // namespace adapters

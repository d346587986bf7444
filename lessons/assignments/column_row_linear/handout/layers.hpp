#pragma once

#include "src/comm/rank.hpp"

// A linear layer y = x W^T + b, with W (out, in) and b (out) as PyTorch stores them, x
// (N, in) and y (N, out). It is shared out to t = rank.size() ranks: a rank is given its
// own part, and never holds a whole W. Part r of `count` columns is chunk(count, t, r) of
// src/comm/chunks.hpp; parts differ in size by one where t does not divide the count, and
// are empty where there are fewer columns than ranks. Below, out_r and in_r are rank r's
// counts. No function changes what it is given.

/// Backward gives a rank this.
struct Gradients {
    lockstep::Tensor dx;  ///< none, lockstep::Tensor(), where nobody wants it
    lockstep::Tensor d_weight;
    lockstep::Tensor d_bias;
};

/// a3.1. Shared out by columns of y. x (N, in) is the same on every rank; weight (out_r,
/// in) and bias (out_r) are rows of W and b. Gives this rank's columns of y, (N, out_r).
lockstep::Tensor column_forward(lockstep::Rank& rank, const lockstep::Tensor& x,
                                const lockstep::Tensor& weight,
                                const lockstep::Tensor& bias);

/// From dy (N, out_r), the gradient of this rank's columns of y: d_weight (out_r, in) and
/// d_bias (out_r) of its part; dx (N, in), complete on every rank. Where dx is not wanted
/// (x is the data) it is neither computed nor sent. The weight's gradient is computed
/// while dx is on its way.
Gradients column_backward(lockstep::Rank& rank, const lockstep::Tensor& x,
                          const lockstep::Tensor& weight, const lockstep::Tensor& dy,
                          bool wants_dx);

/// a3.2. Shared out by columns of x, which are rows of W^T. x (N, in_r) and weight (out,
/// in_r) are columns of x and W; bias (out) is whole, and the same on every rank. Gives y
/// (N, out), complete on every rank.
lockstep::Tensor row_forward(lockstep::Rank& rank, const lockstep::Tensor& x,
                             const lockstep::Tensor& weight,
                             const lockstep::Tensor& bias);

/// From dy (N, out), the same on every rank: dx (N, in_r), d_weight (out, in_r), and
/// d_bias (out), which is whole.
Gradients row_backward(lockstep::Rank& rank, const lockstep::Tensor& x,
                       const lockstep::Tensor& weight, const lockstep::Tensor& dy);

// An MLP, y = GELU(x W1^T + b1) W2^T + b2, with the exact GELU, Device::gelu. x and y are
// (N, hidden), and the same on every rank; between the layers are `inner` columns, of
// which rank r has inner_r. The first layer is shared out by columns, the second by rows.

/// A rank holds this of it.
struct Mlp {
    lockstep::Tensor weight1;  ///< (inner_r, hidden)
    lockstep::Tensor bias1;    ///< (inner_r)
    lockstep::Tensor weight2;  ///< (hidden, inner_r)
    lockstep::Tensor bias2;    ///< (hidden), whole
};

/// y, and what backward needs to know besides x and the weights. What is kept is up to
/// you: mlp_forward and mlp_backward alone read it, by way of adapters.cpp.
struct MlpForward {
    lockstep::Tensor y;
    lockstep::Tensor before_gelu;
    lockstep::Tensor after_gelu;
};

struct MlpGradients {
    lockstep::Tensor dx;  ///< (N, hidden); none where nobody wants it
    Mlp d;                ///< gradients of the four that the rank holds
};

/// a3.3. y (N, hidden), complete on every rank. One all-reduce, no other message.
MlpForward mlp_forward(lockstep::Rank& rank, const lockstep::Tensor& x, const Mlp& mlp);

/// From dy (N, hidden), the same on every rank: dx, complete on every rank, and the
/// gradients of what this rank holds. One all-reduce, and none where dx is not wanted.
MlpGradients mlp_backward(lockstep::Rank& rank, const lockstep::Tensor& x, const Mlp& mlp,
                          const MlpForward& forward, const lockstep::Tensor& dy,
                          bool wants_dx);

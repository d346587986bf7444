#pragma once

#include "src/comm/rank.hpp"

// A linear layer y = x W^T + b, with W (out, in) and b (out) as PyTorch stores them, x
// (N, in) and y (N, out). The layer is sharded over t = rank.size() ranks: a rank gets
// its own part, and never holds a whole W. Part r of `count` columns is chunk(count, t,
// r) of src/comm/chunks.hpp. Parts differ in size by one if t does not divide the count,
// and some are empty if there are fewer columns than ranks. Below, out_r and in_r are
// rank r's counts. No function changes its inputs.

/// The tensors that backward returns on a rank.
struct Gradients {
    lockstep::Tensor dx;  ///< empty, lockstep::Tensor(), if not wanted
    lockstep::Tensor d_weight;
    lockstep::Tensor d_bias;
};

/// a3.1. Sharded by columns of y. x (N, in) is the same on every rank; weight (out_r, in)
/// and bias (out_r) are rows of W and b. Returns this rank's columns of y, (N, out_r).
lockstep::Tensor column_forward(lockstep::Rank& rank, const lockstep::Tensor& x,
                                const lockstep::Tensor& weight,
                                const lockstep::Tensor& bias);

/// Takes dy (N, out_r), the gradient of this rank's columns of y. Returns d_weight
/// (out_r, in) and d_bias (out_r) of this part, and dx (N, in), complete on every rank.
/// If dx is not wanted (x is the data), it is neither computed nor sent. The weight's
/// gradient is computed while dx is on its way.
Gradients column_backward(lockstep::Rank& rank, const lockstep::Tensor& x,
                          const lockstep::Tensor& weight, const lockstep::Tensor& dy,
                          bool wants_dx);

/// a3.2. Sharded by columns of x, which are rows of W^T. x (N, in_r) and weight
/// (out, in_r) are columns of x and W; bias (out) is whole, and the same on every rank.
/// Returns y (N, out), complete on every rank.
lockstep::Tensor row_forward(lockstep::Rank& rank, const lockstep::Tensor& x,
                             const lockstep::Tensor& weight,
                             const lockstep::Tensor& bias);

/// Takes dy (N, out), the same on every rank. Returns dx (N, in_r), d_weight (out, in_r),
/// and d_bias (out), which is whole.
Gradients row_backward(lockstep::Rank& rank, const lockstep::Tensor& x,
                       const lockstep::Tensor& weight, const lockstep::Tensor& dy);

// An MLP, y = GELU(x W1^T + b1) W2^T + b2, with the exact GELU, Device::gelu. x and y are
// (N, hidden), and the same on every rank. Between the layers are `inner` columns; rank r
// has inner_r of them. The first layer is sharded by columns, the second by rows.

/// The part of the MLP that a rank holds.
struct Mlp {
    lockstep::Tensor weight1;  ///< (inner_r, hidden)
    lockstep::Tensor bias1;    ///< (inner_r)
    lockstep::Tensor weight2;  ///< (hidden, inner_r)
    lockstep::Tensor bias2;    ///< (hidden), whole
};

/// y, and what backward needs in addition to x and the weights. You decide what to keep:
/// only mlp_forward and mlp_backward read this, through adapters.cpp.
struct MlpForward {
    lockstep::Tensor y;
    lockstep::Tensor before_gelu;
    lockstep::Tensor after_gelu;
};

struct MlpGradients {
    lockstep::Tensor dx;  ///< (N, hidden); empty if it is not wanted
    Mlp d;                ///< gradients of the four tensors that the rank holds
};

/// a3.3. Returns y (N, hidden), complete on every rank. Sends only one all-reduce.
MlpForward mlp_forward(lockstep::Rank& rank, const lockstep::Tensor& x, const Mlp& mlp);

/// Takes dy (N, hidden), the same on every rank. Returns dx, complete on every rank, and
/// the gradients of this rank's part. Sends one all-reduce, or none if dx is not wanted.
MlpGradients mlp_backward(lockstep::Rank& rank, const lockstep::Tensor& x, const Mlp& mlp,
                          const MlpForward& forward, const lockstep::Tensor& dy,
                          bool wants_dx);

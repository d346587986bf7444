#include "layers.hpp"

using namespace lockstep;

namespace {

/// dW (out, in) = dy^T (out, N) x (N, in), and db (out), the sum of the rows of dy.
void add_parameter_gradients(Rank& rank, const Tensor& x, const Tensor& dy,
                             Gradients& gradients) {
    gradients.d_weight = rank.device().matmul(dy, x, {.transpose_a = true});
    gradients.d_bias = rank.device().zeros({dy.shape().columns()}, dy.dtype());
    rank.device().accumulate_rows(gradients.d_bias, dy);
}

}  // namespace

// y_r (N, out_r) = x (N, in) W_r^T (in, out_r) + b_r: this rank has all terms.
Tensor column_forward(Rank& rank, const Tensor& x, const Tensor& weight,
                      const Tensor& bias) {
    Tensor y = rank.device().matmul(x, weight, {.transpose_b = true});
    rank.device().add_bias(y, bias);
    return y;
}

// dx (N, in) is the sum of dy_r (N, out_r) W_r (out_r, in) over the ranks.
Gradients column_backward(Rank& rank, const Tensor& x, const Tensor& weight,
                          const Tensor& dy, bool wants_dx) {
    Gradients gradients;
    if (!wants_dx) {
        add_parameter_gradients(rank, x, dy, gradients);
        return gradients;
    }
    gradients.dx = rank.device().matmul(dy, weight);
    Work sum = rank.world().all_reduce(gradients.dx);
    add_parameter_gradients(rank, x, dy, gradients);
    sum.wait();
    return gradients;
}

// y (N, out) is the sum of x_r (N, in_r) W_r^T (in_r, out) over the ranks, plus b.
Tensor row_forward(Rank& rank, const Tensor& x, const Tensor& weight,
                   const Tensor& bias) {
    Tensor y = rank.device().matmul(x, weight, {.transpose_b = true});
    rank.world().all_reduce(y).wait();
    rank.device().add_bias(y, bias);
    return y;
}

// dx_r (N, in_r) = dy (N, out) W_r (out, in_r): no other rank has terms of it.
Gradients row_backward(Rank& rank, const Tensor& x, const Tensor& weight,
                       const Tensor& dy) {
    Gradients gradients;
    gradients.dx = rank.device().matmul(dy, weight);
    add_parameter_gradients(rank, x, dy, gradients);
    return gradients;
}

// GELU works number by number, so a rank needs only its own columns.
MlpForward mlp_forward(Rank& rank, const Tensor& x, const Mlp& mlp) {
    const Tensor before = column_forward(rank, x, mlp.weight1, mlp.bias1);
    const Tensor after = rank.device().gelu(before);
    return {row_forward(rank, after, mlp.weight2, mlp.bias2), before, after};
}

MlpGradients mlp_backward(Rank& rank, const Tensor& x, const Mlp& mlp,
                          const MlpForward& forward, const Tensor& dy, bool wants_dx) {
    const Gradients second = row_backward(rank, forward.after_gelu, mlp.weight2, dy);
    const Tensor d_before = rank.device().gelu_backward(forward.before_gelu, second.dx);
    const Gradients first = column_backward(rank, x, mlp.weight1, d_before, wants_dx);
    return {first.dx, {first.d_weight, first.d_bias, second.d_weight, second.d_bias}};
}

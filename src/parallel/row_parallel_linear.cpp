#include "src/parallel/row_parallel_linear.hpp"

#include <cmath>

#include "src/nn/linear.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

namespace {

Part own_columns(const ParameterInit& init, const TensorParallel& tp, std::int64_t in,
                 std::int64_t out) {
    const Shape whole = linear_shape(init, in, out);
    const std::int64_t share = tp.share(init.name, "columns", in);
    return column_part(whole, tp.rank() * share, share);
}

}  // namespace

RowParallelLinear::RowParallelLinear(const ParameterInit& init, TensorParallel& tp,
                                     std::int64_t in, std::int64_t out, bool bias)
    : tp_(tp),
      device_(init.device),
      weight_(init, "weight", own_columns(init, tp, in, out)) {
    tp.shard(weight_);
    if (bias) {
        bias_.emplace(init, "bias", Shape{out});
        tp.replicate({&*bias_});
    }
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    for (Parameter* parameter : own_parameters())
        start_uniform(*parameter, init.seed, bound);
}

std::vector<Parameter*> RowParallelLinear::own_parameters() {
    if (bias_) return {&weight_, &*bias_};
    return {&weight_};
}

// lesson: row-parallel
// y (N, out) = g(x_r (N, in/t) W_r^T (in/t, out)) + b (out)
Tensor RowParallelLinear::do_forward(const Tensor& x, Saved& saved) {
    require_columns(weight_, "this rank's x", x, weight_.shape()[1]);
    saved.keep("x", x);
    Tensor y = tp_.leave(device_.matmul(x, weight_.value, {.transpose_b = true}));
    if (bias_) device_.add_bias(y, bias_->value);
    return y;
}

// dx_r (N, in/t) = g's backward of dy (N, out), times W_r (out, in/t)
Tensor RowParallelLinear::do_backward_input(const Tensor& dy, Saved& saved) {
    require_columns(weight_, "dy", dy, /*out*/ weight_.shape()[0]);
    const Tensor whole = tp_.leave_backward(dy);
    saved.keep("whole dy", whole);
    if (bias_) saved.keep("dy", dy);
    if (!input_gradient()) return {};
    return device_.matmul(whole, weight_.value);
}

// dW_r (out, in/t) += dy^T x_r,  db += the sum of the rows of dy
void RowParallelLinear::do_backward_weight(Saved& saved) {
    device_.matmul_into(weight_.gradient, saved.at("whole dy"), saved.at("x"),
                        {.transpose_a = true, .accumulate = true});
    weight_.accumulated();
    if (!bias_) return;
    device_.accumulate_rows(bias_->gradient, saved.at("dy"));
    bias_->accumulated();
}
// lesson: end

}  // namespace lockstep

#include "src/parallel/plain_column_parallel_linear.hpp"

#include <cmath>

#include "src/core/require.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

namespace {

/// Returns this rank's rows of a whole weight (out, in) or bias (out).
Part rows_of_rank(const ParameterInit& init, const TensorParallel& tp,
                  const Shape& whole) {
    const std::int64_t count = tp.share(init.name, "columns", whole[0]);
    return row_part(whole, tp.rank() * count, count);
}

}  // namespace

PlainColumnParallelLinear::PlainColumnParallelLinear(const ParameterInit& init,
                                                     TensorParallel& tp, std::int64_t in,
                                                     std::int64_t out)
    : tp_(tp),
      device_(init.device),
      weight_(init, "weight", rows_of_rank(init, tp, linear_shape(init, in, out))),
      bias_(init, "bias", rows_of_rank(init, tp, {out})) {
    require(!tp.splits_sequence(), "{}: each rank holds only a part of the sequence",
            weight_.name());
    for (Parameter* parameter : own_parameters()) {
        tp.shard(*parameter);
        start_uniform(*parameter, init.seed, 1 / std::sqrt(static_cast<double>(in)));
    }
}

// y_r (N, out/t) = x (N, in) W_r^T (in, out/t) + b_r (out/t)
Tensor PlainColumnParallelLinear::do_forward(const Tensor& x, Saved& saved) {
    require_columns(weight_, "x", x, /*in*/ weight_.shape()[1]);
    saved.keep("x", x);
    Tensor y = device_.matmul(x, weight_.value, {.transpose_b = true});
    device_.add_bias(y, bias_.value);
    return y;
}

// dx (N, in) = the sum of dy_r (N, out/t) W_r (out/t, in) over r
Tensor PlainColumnParallelLinear::do_backward_input(const Tensor& dy, Saved& saved) {
    require_columns(weight_, "dy", dy, /*out/t*/ weight_.shape()[0]);
    saved.keep("dy", dy);
    if (!input_gradient()) return {};
    Tensor dx = device_.matmul(dy, weight_.value);
    tp_.group().all_reduce(dx).wait();
    return dx;
}

// dW_r (out/t, in) += dy_r^T x, db_r (out/t) += the sum of the rows of dy_r
void PlainColumnParallelLinear::do_backward_weight(Saved& saved) {
    const Tensor &x = saved.at("x"), &dy = saved.at("dy");
    device_.matmul_into(weight_.gradient, dy, x,
                        {.transpose_a = true, .accumulate = true});
    device_.accumulate_rows(bias_.gradient, dy);
    weight_.accumulated();
    bias_.accumulated();
}

}  // namespace lockstep

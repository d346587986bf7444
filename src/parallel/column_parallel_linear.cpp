#include "src/parallel/column_parallel_linear.hpp"

#include <cmath>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/nn/part.hpp"
#include "src/parallel/columns.hpp"

namespace lockstep {

namespace {

/// Rows of this rank in each of the stacked layers.
std::int64_t rows_each(const std::string& layer, const TensorParallel& tp,
                       std::int64_t out,
                       const ColumnParallelOptions& options) {
    const int stacked = options.stacked;
    require(out > 0 && stacked > 0 && out % stacked == 0, [&] {
        return fmt::format(
            "{}: {} columns for {} stacked layers; each must get as many",
            layer, out, stacked);
    });
    if (options.pad) return (out / stacked + tp.size() - 1) / tp.size();
    return tp.share(layer, "columns", out / stacked);
}

/// Rows of the whole (out, …) that this rank holds: its share of each of
/// the stacked layers.
Part part_of(const TensorParallel& tp, const Shape& whole, int stacked,
             std::int64_t rows) {
    const std::int64_t layer = whole[0] / stacked;
    Part part{whole, {}, 0};
    for (int i = 0; i < stacked; ++i) {
        const Part own = rows_of({layer}, tp.rank() * rows, rows);
        part.rows.push_back(
            {i * rows, i * layer + tp.rank() * rows, own.rows[0].count});
    }
    return part;
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const ParameterInit& init,
                                           TensorParallel& tp,
                                           std::int64_t in,
                                           std::int64_t out,
                                           ColumnParallelOptions options)
    : tp_(tp),
      device_(init.device),
      gather_output_(options.gather_output),
      weight_(
          init, "weight",
          {options.stacked * rows_each(init.name, tp, out, options), in},
          part_of(tp, {out, in}, options.stacked,
                  rows_each(init.name, tp, out, options))) {
    const std::int64_t rows = weight_.shape()[0];
    if (options.bias)
        bias_.emplace(
            init, "bias", Shape{rows},
            part_of(tp, {out}, options.stacked, rows / options.stacked));
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    for (const Parameter* parameter : own_parameters())
        draw_uniform(*parameter, init.seed, bound);
}

std::vector<Parameter*> ColumnParallelLinear::own_parameters() {
    if (bias_) return {&weight_, &*bias_};
    return {&weight_};
}

// lesson: column-parallel
// y_r (N, out/t) = f(x) (N, in) W_r^T (in, out/t) + b_r (out/t)
Tensor ColumnParallelLinear::do_forward(const Tensor& x, Saved& saved) {
    saved.keep("x", x);
    Tensor y =
        device_.matmul(tp_.enter(x), weight_.value, {.transpose_b = true});
    if (bias_) device_.add_bias(y, bias_->value);
    return gather_output_ ? gather_columns(tp_, y) : y;
}

// dx (N, in) = f's backward of dy_r (N, out/t) W_r (out/t, in)
Arriving ColumnParallelLinear::start_backward_input(const Tensor& dy,
                                                    Saved& saved) {
    const Tensor own = gather_output_ ? own_columns(tp_, dy) : dy;
    saved.keep("dy", own);
    if (!input_gradient()) return {};
    return tp_.enter_backward(device_.matmul(own, weight_.value));
}

// dW_r (out/t, in) += dy_r^T f(x),  db_r += the sum of the rows of dy_r
void ColumnParallelLinear::do_backward_weight(Saved& saved) {
    const Tensor &x = saved.at("x"), &dy = saved.at("dy");
    device_.matmul_into(weight_.gradient, dy, tp_.enter(x),
                        {.transpose_a = true, .accumulate = true});
    weight_.accumulated();
    if (!bias_) return;
    device_.accumulate_rows(bias_->gradient, dy);
    bias_->accumulated();
}

// The weight's gradient needs no message, and hides that of x's.
Tensor ColumnParallelLinear::do_backward(const Tensor& dy, Saved& saved) {
    Arriving dx = start_backward_input(dy, saved);
    do_backward_weight(saved);
    return dx.wait();
}
// lesson: end

Tensor ColumnParallelLinear::do_backward_input(const Tensor& dy,
                                               Saved& saved) {
    return start_backward_input(dy, saved).wait();
}

}  // namespace lockstep

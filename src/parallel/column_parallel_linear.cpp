#include "src/parallel/column_parallel_linear.hpp"

#include <cmath>
#include <numeric>

#include "src/core/require.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

namespace {

/// Returns this rank's part of a whole weight (out, in) or bias (out). Throws UsageError
/// if it cannot be sharded.
Part own_rows(const ParameterInit& init, const TensorParallel& tp, const Shape& whole,
              const ColumnParallelOptions& options) {
    std::vector<std::int64_t> layers = options.stacked;
    if (layers.empty()) layers = {whole[0]};
    const auto all = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
    require(all == whole[0],
            "{}: the stacked layers have {} columns together, but the layer has {}",
            init.name, all, whole[0]);
    for (std::size_t i = 0; i < layers.size(); ++i) {
        const std::int64_t most =
            i < options.shares.size() ? options.shares[i] : tp.size();
        require(most > 0 && (most % tp.size() == 0 || tp.size() % most == 0),
                "{}: {} shares for {} ranks; one must divide the other", init.name, most,
                tp.size());
        if (!options.pad && tp.size() <= most) tp.share(init.name, "columns", layers[i]);
    }
    return stacked_part(whole, layers, tp.size(), tp.rank(), options.shares);
}

/// Gathered columns are the whole y only if each rank has one contiguous share of the
/// columns, and the whole sequence.
void require_gatherable(const ParameterInit& init, const TensorParallel& tp,
                        const ColumnParallelOptions& options) {
    if (!options.gather_output) return;
    require(options.stacked.size() <= 1 && !options.pad,
            "{}: gather_output puts shares side by side, so it cannot be used with "
            "stacked layers or padding",
            init.name);
    require(!tp.splits_sequence(),
            "{}: gather_output gives every rank the whole sequence, but "
            "with sequence parallelism each holds a part outside regions",
            init.name);
}

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(const ParameterInit& init, TensorParallel& tp,
                                           std::int64_t in, std::int64_t out,
                                           const ColumnParallelOptions& options)
    : tp_(tp),
      device_(init.device),
      gather_output_(options.gather_output),
      own_weight_(std::in_place, init, "weight",
                  own_rows(init, tp, linear_shape(init, in, out), options)),
      weight_(*own_weight_) {
    require_gatherable(init, tp, options);
    for (const std::int64_t most : options.shares)
        only_infers_ |= most < tp.size();
    if (options.bias) bias_.emplace(init, "bias", own_rows(init, tp, {out}, options));
    const double bound = 1 / std::sqrt(static_cast<double>(in));
    for (Parameter* parameter : own_parameters()) {
        tp.shard(*parameter);
        start_uniform(*parameter, init.seed, bound);
    }
}

ColumnParallelLinear::ColumnParallelLinear(TensorParallel& tp, Parameter& tied)
    : tp_(tp), device_(tp.device()), gather_output_(false), weight_(tied) {
    ++weight_.uses;
}

std::vector<Parameter*> ColumnParallelLinear::parameters() {
    if (own_weight_) return own_parameters();
    return {};
}

std::vector<Parameter*> ColumnParallelLinear::own_parameters() {
    if (bias_) return {&weight_, &*bias_};
    return {&weight_};
}

// lesson: column-parallel
// y_r (N, out/t) = f(x) (N, in) W_r^T (in, out/t) + b_r (out/t)
Tensor ColumnParallelLinear::do_forward(const Tensor& x, Saved& saved) {
    require_columns(weight_, "x", x, /*in*/ weight_.shape()[1]);
    saved.keep("x", x);
    Tensor y = device_.matmul(tp_.enter(x).wait(), weight_.value, {.transpose_b = true});
    if (bias_) device_.add_bias(y, bias_->value);
    return gather_output_ ? gather_columns(tp_, y) : y;
}

// dx (N, in) = f's backward of dy_r (N, out/t) W_r (out/t, in)
Arriving ColumnParallelLinear::start_backward_input(const Tensor& dy, Saved& saved) {
    const Tensor own = gather_output_ ? own_columns(tp_, dy) : dy;
    require_backward(own, saved.line());
    saved.keep("dy", own);
    if (!input_gradient()) return {};
    return tp_.enter_backward(device_.matmul(own, weight_.value));
}

// dW_r (out/t, in) += dy_r^T f(x),  db_r += the sum of the rows of dy_r
void ColumnParallelLinear::add_weight_gradients(const Tensor& x, const Tensor& dy) {
    device_.matmul_into(weight_.gradient, dy, x,
                        {.transpose_a = true, .accumulate = true});
    weight_.accumulated();
    if (!bias_) return;
    device_.accumulate_rows(bias_->gradient, dy);
    bias_->accumulated();
}

// Messages and products overlap: f(x), which the weight's gradient needs, arrives while
// dx is computed, and dx is reduced while the weight's gradient is computed.
Tensor ColumnParallelLinear::do_backward(const Tensor& dy, Saved& saved) {
    Arriving x = tp_.enter(saved.at("x"));
    Arriving dx = start_backward_input(dy, saved);
    add_weight_gradients(x.wait(), saved.at("dy"));
    return dx.wait();
}
// lesson: end

/// Checks dy_r (N, out/t). Throws if the layer can only infer.
void ColumnParallelLinear::require_backward(const Tensor& dy, SourceLine at) const {
    require(!only_infers_, at,
            "backward of {}: several ranks hold copies of it, so it can only infer",
            weight_.name());
    require_columns(weight_, "dy", dy, weight_.shape()[0]);
}

Tensor ColumnParallelLinear::do_backward_input(const Tensor& dy, Saved& saved) {
    return start_backward_input(dy, saved).wait();
}

void ColumnParallelLinear::do_backward_weight(Saved& saved) {
    add_weight_gradients(tp_.enter(saved.at("x")).wait(), saved.at("dy"));
}

Tensor gather_columns(TensorParallel& tp, const Tensor& own) {
    const int ranks = tp.size();
    const std::int64_t rows = own.shape().matrix_rows();
    const std::int64_t columns = own.shape().columns();
    Device& device = tp.device();

    // An all-gather puts whole blocks one after another, (t, N, c), but columns must be
    // side by side.
    const Tensor blocks = device.empty({ranks, rows, columns}, own.dtype());
    tp.group().all_gather(blocks, own).wait();
    Tensor whole = device.empty(own.shape().with_last(columns * ranks), own.dtype());
    for (int rank = 0; rank < ranks; ++rank)
        device.copy_columns(whole, rank * columns,
                            blocks.rows(rank, 1).reshaped({rows, columns}), 0, columns);
    return whole;
}

Tensor own_columns(TensorParallel& tp, const Tensor& whole) {
    const std::int64_t columns =
        tp.share("own_columns", "columns", whole.shape().columns());
    Tensor own = tp.device().empty(whole.shape().with_last(columns), whole.dtype());
    tp.device().copy_columns(own, 0, whole, tp.rank() * columns, columns);
    return own;
}

}  // namespace lockstep

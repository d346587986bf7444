#include "src/nn/linear.hpp"

#include <cmath>

#include "src/core/require.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

Shape linear_shape(const ParameterInit& init, std::int64_t in, std::int64_t out) {
    require(in > 0 && out > 0,
            "{}: a linear layer from {} to {} columns; both must be positive",
            init.child("weight").name, in, out);
    return {out, in};
}

void require_columns(const Parameter& weight, const char* what, const Tensor& tensor,
                     std::int64_t columns) {
    require(tensor.shape().columns() == columns,
            "{} has shape {}, so {} must have {} columns; got shape {}", weight.name(),
            weight.shape(), what, columns, tensor.shape());
}

Linear::Linear(const ParameterInit& init, std::int64_t in, std::int64_t out, bool bias)
    : device_(init.device),
      own_weight_(std::in_place, init, "weight", linear_shape(init, in, out)),
      weight_(*own_weight_) {
    if (bias) bias_.emplace(init, "bias", Shape{out});

    const double bound = 1 / std::sqrt(static_cast<double>(in));
    for (Parameter* parameter : own_parameters())
        start_uniform(*parameter, init.seed, bound);
}

Linear::Linear(Device& device, Parameter& tied) : device_(device), weight_(tied) {
    ++weight_.uses;
}

std::vector<Parameter*> Linear::parameters() {
    if (own_weight_) return own_parameters();
    return {};
}

std::vector<Parameter*> Linear::own_parameters() {
    if (bias_) return {&weight_, &*bias_};
    return {&weight_};
}

// y (N, out) = x (N, in) W^T (in, out) + b (out)
Tensor Linear::do_forward(const Tensor& x, Saved& saved) {
    require_columns(weight_, "x", x, /*in*/ weight_.shape()[1]);
    saved.keep("x", x);
    Tensor y = device_.matmul(x, weight_.value, {.transpose_b = true});
    if (bias_) device_.add_bias(y, bias_->value);
    return y;
}

// dx (N, in) = dy (N, out) W (out, in)
Tensor Linear::do_backward_input(const Tensor& dy, Saved& saved) {
    require_columns(weight_, "dy", dy, /*out*/ weight_.shape()[0]);
    saved.keep("dy", dy);
    if (!input_gradient()) return {};
    return device_.matmul(dy, weight_.value);
}

// dW (out, in) += dy^T (out, N) x (N, in)
// db (out) += the sum of the rows of dy (N, out)
void Linear::do_backward_weight(Saved& saved) {
    const Tensor &x = saved.at("x"), &dy = saved.at("dy");
    device_.matmul_into(weight_.gradient, dy, x,
                        {.transpose_a = true, .accumulate = true});
    weight_.accumulated();
    if (!bias_) return;
    device_.accumulate_rows(bias_->gradient, dy);
    bias_->accumulated();
}

}  // namespace lockstep

#include "src/nn/norm.hpp"

#include "src/nn/part.hpp"

namespace lockstep {

LayerNorm::LayerNorm(const ParameterInit& init, std::int64_t width, double epsilon)
    : device_(init.device),
      weight_(init, "weight", {width}),
      bias_(init, "bias", {width}),
      epsilon_(epsilon) {
    start_constant(weight_, 1);
    start_constant(bias_, 0);
}

Tensor LayerNorm::do_forward(const Tensor& x, Saved& saved) {
    Normalized result = device_.layer_norm(x, weight_.value, bias_.value, epsilon_);
    saved.keep("x", x);
    saved.keep("mean", std::move(result.mean));
    saved.keep("rstd", std::move(result.rstd));
    return std::move(result.y);
}

// With n = (x - mean) rstd and g = dy * weight, row by row:
// dx = rstd (g - mean(g) - n mean(g n))
Tensor LayerNorm::do_backward_input(const Tensor& dy, Saved& saved) {
    saved.keep("dy", dy);
    if (!input_gradient()) return {};
    const Normalized statistics{{}, saved.at("mean"), saved.at("rstd")};
    return device_.layer_norm_backward_input(dy, saved.at("x"), weight_.value,
                                             statistics);
}

// d_weight += the sum of dy n over rows; d_bias += the sum of dy over rows
void LayerNorm::do_backward_weight(Saved& saved) {
    const Normalized statistics{{}, saved.at("mean"), saved.at("rstd")};
    device_.layer_norm_backward_weight(weight_.gradient, bias_.gradient, saved.at("dy"),
                                       saved.at("x"), statistics);
    weight_.accumulated();
    bias_.accumulated();
}

RmsNorm::RmsNorm(const ParameterInit& init, std::int64_t width, double epsilon)
    : device_(init.device), weight_(init, "weight", {width}), epsilon_(epsilon) {
    start_constant(weight_, 1);
}

Tensor RmsNorm::do_forward(const Tensor& x, Saved& saved) {
    Normalized result = device_.rms_norm(x, weight_.value, epsilon_);
    saved.keep("x", x);
    saved.keep("rstd", std::move(result.rstd));
    return std::move(result.y);
}

// With n = x rstd and g = dy * weight, row by row: dx = rstd (g - n mean(g n))
Tensor RmsNorm::do_backward_input(const Tensor& dy, Saved& saved) {
    saved.keep("dy", dy);
    if (!input_gradient()) return {};
    return device_.rms_norm_backward_input(dy, saved.at("x"), weight_.value,
                                           saved.at("rstd"));
}

// d_weight += the sum of dy n over rows
void RmsNorm::do_backward_weight(Saved& saved) {
    device_.rms_norm_backward_weight(weight_.gradient, saved.at("dy"), saved.at("x"),
                                     saved.at("rstd"));
    weight_.accumulated();
}

}  // namespace lockstep

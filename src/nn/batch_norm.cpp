#include "src/nn/batch_norm.hpp"

#include "src/core/require.hpp"
#include "src/nn/part.hpp"

namespace lockstep {

namespace {

Shape batch_norm_shape(const ParameterInit& init, std::int64_t width) {
    require(width > 0, "BatchNorm {}: width is {}; it must be positive", init.name,
            width);
    return {width};
}

Tensor running_statistic(const ParameterInit& init, const std::string& name,
                         std::int64_t width, double value) {
    const MemoryScope scope(init.device, MemoryCategory::parameters);
    Tensor statistic = init.device.empty({width}, computed_in(init.dtype));
    statistic.set_label(init.child(name).name);
    init.device.fill(statistic, value);
    return statistic;
}

/// gradient += terms, which are f32 if the gradient is bf16.
void add_terms(Device& device, const Tensor& gradient, const Tensor& terms) {
    if (gradient.dtype() == terms.dtype()) return device.add(gradient, terms);
    const Tensor rounded = device.empty(gradient.shape(), gradient.dtype());
    device.cast(rounded, terms);
    device.add(gradient, rounded);
}

}  // namespace

BatchNorm::BatchNorm(const ParameterInit& init, std::int64_t width,
                     const BatchNormOptions& options)
    : device_(init.device),
      weight_(init, "weight", batch_norm_shape(init, width)),
      bias_(init, "bias", {width}),
      name_(init.child("").name),
      running_{running_statistic(init, "running_mean", width, 0),
               running_statistic(init, "running_var", width, 1), options.momentum},
      epsilon_(options.epsilon) {
    start_constant(weight_, 1);
    start_constant(bias_, 0);
}

// lesson: batch-norm
Tensor BatchNorm::do_forward(const Tensor& x, Saved& saved) {
    const SourceLine at = saved.line();
    require(!is_alone() || x.shape().matrix_rows() > 1, at,
            "{}: a batch of shape {} has no variance; batch norm needs two rows",
            weight_.name(), x.shape());
    const Tensor sums = of_batch(device_.batch_sums(x, at), at);
    const Tensor squares = of_batch(device_.batch_squares(x, sums, at), at);
    const Normalized moments =
        device_.batch_moments(sums, squares, running_, epsilon_, at);
    saved.keep("x", x);
    saved.keep("mean", moments.mean);
    saved.keep("rstd", moments.rstd);
    saved.keep("count", sums.slice(sums.elements() - 1, 1));
    return device_.batch_norm(x, moments, weight_.value, bias_.value, at);
}

// With n = (x - mean) rstd, and means over the rows of the batch:
// dx = rstd weight (dy - mean(dy) - n mean(dy n))
Tensor BatchNorm::do_backward_input(const Tensor& dy, Saved& saved) {
    const SourceLine at = saved.line();
    const Tensor& x = saved.at("x");
    const Normalized moments{{}, saved.at("mean"), saved.at("rstd")};
    const Tensor own = device_.batch_norm_backward_sums(dy, x, moments, at);
    Tensor dx;
    if (input_gradient())
        dx = device_.batch_norm_backward_input(dy, x, weight_.value, moments,
                                               of_batch(own, at), saved.at("count"), at);
    saved.keep("own sums", own);
    for (const char* name : {"x", "mean", "rstd", "count"})
        saved.drop(name);
    return dx;
}

// d_bias += the sum of dy over this device's rows; d_weight += the sum of dy n
void BatchNorm::do_backward_weight(Saved& saved) {
    const Tensor& own = saved.at("own sums");
    add_terms(device_, bias_.gradient, own.rows(0, 1).flat());
    add_terms(device_, weight_.gradient, own.rows(1, 1).flat());
    weight_.accumulated();
    bias_.accumulated();
}
// lesson: end

Tensor BatchNorm::do_infer(const Tensor& x, SourceLine at) {
    // Uses the running statistics as the moments of a batch of one row.
    const std::int64_t width = weight_.value.elements();
    const Tensor sums = device_.empty({width + 1}, running_.mean.dtype(), at);
    device_.copy(sums.slice(0, width), running_.mean, at);
    device_.fill(sums.slice(width, 1), 1, at);
    const Normalized moments =
        device_.batch_moments(sums, running_.variance, {}, epsilon_, at);
    return device_.batch_norm(x, moments, weight_.value, bias_.value, at);
}

}  // namespace lockstep

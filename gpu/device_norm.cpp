#include "gpu/device.hpp"
#include "gpu/kernels/norm.hpp"

namespace lockstep::gpu {

namespace {

/// Without a `mean`, root mean square norm's.
NormOperands operands(const Tensor& x, const Tensor& rstd, const Numbers& mean = {}) {
    return {x.shape().rows(), x.shape().columns(), x, mean, rstd};
}

}  // namespace

template <>
void Device::compute(const ops::LayerNorm& op) {
    const auto& [y, mean, rstd] = op.result;
    launch_norm(stream_.get(), y, mean, rstd, operands(op.x, rstd, mean), op.weight,
                op.bias, op.epsilon);
}

template <>
void Device::compute(const ops::LayerNormBackwardInput& op) {
    launch_norm_backward_input(stream_.get(), op.dx, op.dy,
                               operands(op.x, op.rstd, op.mean), op.weight);
}

template <>
void Device::compute(const ops::LayerNormBackwardWeight& op) {
    const NormOperands of = operands(op.x, op.rstd, op.mean);
    const Tensor workspace = scratch({norm_partials(of)}, computed_in(op.x.dtype()));
    launch_norm_backward_weight(stream_.get(), workspace, op.d_weight, op.d_bias, op.dy,
                                of);
}

template <>
void Device::compute(const ops::RmsNorm& op) {
    launch_norm(stream_.get(), op.y, {}, op.rstd, operands(op.x, op.rstd), op.weight, {},
                op.epsilon);
}

template <>
void Device::compute(const ops::RmsNormBackwardInput& op) {
    launch_norm_backward_input(stream_.get(), op.dx, op.dy, operands(op.x, op.rstd),
                               op.weight);
}

template <>
void Device::compute(const ops::RmsNormBackwardWeight& op) {
    const NormOperands of = operands(op.x, op.rstd);
    const Tensor workspace = scratch({norm_partials(of)}, computed_in(op.x.dtype()));
    launch_norm_backward_weight(stream_.get(), workspace, op.d_weight, {}, op.dy, of);
}

}  // namespace lockstep::gpu

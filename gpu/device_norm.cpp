#include "gpu/device.hpp"
#include "gpu/kernels/batch_norm.hpp"
#include "gpu/kernels/norm.hpp"

namespace lockstep::gpu {

namespace {

/// Without a `mean` these are the operands of a root mean square norm.
NormOperands operands(const Tensor& x, const Tensor& rstd, const Numbers& mean = {}) {
    return {x.shape().matrix_rows(), x.shape().columns(), x, mean, rstd};
}

BatchOperands batch(const Tensor& x, const Numbers& mean = {}, const Numbers& rstd = {}) {
    return {x.shape().matrix_rows(), x.shape().columns(), x, mean, rstd};
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
    const NormOperands norm = operands(op.x, op.rstd, op.mean);
    const Tensor workspace = scratch({norm_partials(norm)}, computed_in(op.x.dtype()));
    launch_norm_backward_weight(stream_.get(), workspace, op.d_weight, op.d_bias, op.dy,
                                norm);
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
    const NormOperands norm = operands(op.x, op.rstd);
    const Tensor workspace = scratch({norm_partials(norm)}, computed_in(op.x.dtype()));
    launch_norm_backward_weight(stream_.get(), workspace, op.d_weight, {}, op.dy, norm);
}

template <>
void Device::compute(const ops::BatchSums& op) {
    const BatchOperands norm = batch(op.x);
    const Tensor workspace = scratch({batch_partials(norm)}, computed_in(op.x.dtype()));
    launch_batch_sums(stream_.get(), workspace, op.sums, norm);
}

template <>
void Device::compute(const ops::BatchSquares& op) {
    const BatchOperands norm = batch(op.x);
    const Tensor workspace = scratch({batch_partials(norm)}, computed_in(op.x.dtype()));
    launch_batch_squares(stream_.get(), workspace, op.squares, norm, op.sums);
}

template <>
void Device::compute(const ops::BatchMoments& op) {
    BatchMomentsOperands moments{op.squares.elements(), op.mean, op.rstd, op.sums,
                                 op.squares};
    if (op.running.mean) {
        moments.running_mean = op.running.mean;
        moments.running_variance = op.running.variance;
    }
    launch_batch_moments(stream_.get(), moments, op.running.momentum, op.epsilon);
}

template <>
void Device::compute(const ops::BatchNorm& op) {
    launch_batch_norm(stream_.get(), op.y, batch(op.x, op.mean, op.rstd), op.weight,
                      op.bias);
}

template <>
void Device::compute(const ops::BatchNormBackwardSums& op) {
    const BatchOperands norm = batch(op.x, op.mean, op.rstd);
    const Tensor workspace =
        scratch({2 * batch_partials(norm)}, computed_in(op.x.dtype()));
    launch_batch_norm_backward_sums(stream_.get(), workspace, op.sums, op.dy, norm);
}

template <>
void Device::compute(const ops::BatchNormBackwardInput& op) {
    launch_batch_norm_backward_input(stream_.get(), op.dx, op.dy,
                                     batch(op.x, op.mean, op.rstd), op.weight, op.sums,
                                     op.count);
}

}  // namespace lockstep::gpu

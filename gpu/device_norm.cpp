#include "gpu/device.hpp"
#include "gpu/kernels/norm.hpp"
#include "gpu/kernels/rms_norm.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

namespace {

template <typename T>
NormOperands<T> operands(const Tensor& x, const Tensor& mean, const Tensor& rstd) {
    return {x.shape().rows(), x.shape().columns(), x.data<const T>(),
            mean.data<const T>(), rstd.data<const T>()};
}

template <typename T>
RmsNormOperands<T> operands(const Tensor& x, const Tensor& rstd) {
    return {x.shape().rows(), x.shape().columns(), x.data<const T>(),
            rstd.data<const T>()};
}

}  // namespace

template <>
void Device::compute(const ops::LayerNorm& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_layer_norm(stream_.get(), op.result.y.data<T>(), op.result.mean.data<T>(),
                          op.result.rstd.data<T>(),
                          operands<T>(op.x, op.result.mean, op.result.rstd),
                          op.weight.data<const T>(), op.bias.data<const T>(),
                          static_cast<T>(op.epsilon));
    });
}

template <>
void Device::compute(const ops::LayerNormBackwardInput& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_layer_norm_backward_input(
            stream_.get(), op.dx.data<T>(), op.dy.data<const T>(),
            operands<T>(op.x, op.mean, op.rstd), op.weight.data<const T>());
    });
}

template <>
void Device::compute(const ops::LayerNormBackwardWeight& op) {
    const Shape& shape = op.x.shape();
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const Tensor workspace = scratch(
            {layer_norm_partials<T>(shape.rows(), shape.columns())}, op.x.dtype());
        launch_layer_norm_backward_weight(stream_.get(), workspace.data<T>(),
                                          op.d_weight.data<T>(), op.d_bias.data<T>(),
                                          op.dy.data<const T>(),
                                          operands<T>(op.x, op.mean, op.rstd));
    });
}

template <>
void Device::compute(const ops::RmsNorm& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_rms_norm(stream_.get(), op.y.data<T>(), op.rstd.data<T>(),
                        operands<T>(op.x, op.rstd), op.weight.data<const T>(),
                        static_cast<T>(op.epsilon));
    });
}

template <>
void Device::compute(const ops::RmsNormBackwardInput& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_rms_norm_backward_input(stream_.get(), op.dx.data<T>(),
                                       op.dy.data<const T>(), operands<T>(op.x, op.rstd),
                                       op.weight.data<const T>());
    });
}

template <>
void Device::compute(const ops::RmsNormBackwardWeight& op) {
    const Shape& shape = op.x.shape();
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const Tensor workspace =
            scratch({rms_norm_partials<T>(shape.rows(), shape.columns())}, op.x.dtype());
        launch_rms_norm_backward_weight(stream_.get(), workspace.data<T>(),
                                        op.d_weight.data<T>(), op.dy.data<const T>(),
                                        operands<T>(op.x, op.rstd));
    });
}

}  // namespace lockstep::gpu

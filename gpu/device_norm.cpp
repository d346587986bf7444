#include "gpu/device.hpp"
#include "gpu/kernels/norm.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

namespace {

/// `mean` is null for root mean square norm.
template <typename T>
NormOperands<T> operands(const Tensor& x, const T* mean, const Tensor& rstd) {
    return {x.shape().rows(), x.shape().columns(), x.data<const T>(), mean,
            rstd.data<const T>()};
}

}  // namespace

template <>
void Device::compute(const ops::LayerNorm& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        T* mean = op.result.mean.data<T>();
        launch_norm(stream_.get(), op.result.y.data<T>(), mean, op.result.rstd.data<T>(),
                    operands<T>(op.x, mean, op.result.rstd), op.weight.data<const T>(),
                    op.bias.data<const T>(), static_cast<T>(op.epsilon));
    });
}

template <>
void Device::compute(const ops::LayerNormBackwardInput& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_norm_backward_input(stream_.get(), op.dx.data<T>(), op.dy.data<const T>(),
                                   operands(op.x, op.mean.data<const T>(), op.rstd),
                                   op.weight.data<const T>());
    });
}

template <>
void Device::compute(const ops::LayerNormBackwardWeight& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const auto of = operands(op.x, op.mean.data<const T>(), op.rstd);
        const Tensor workspace = scratch({norm_partials(of)}, op.x.dtype());
        launch_norm_backward_weight(stream_.get(), workspace.data<T>(),
                                    op.d_weight.data<T>(), op.d_bias.data<T>(),
                                    op.dy.data<const T>(), of);
    });
}

template <>
void Device::compute(const ops::RmsNorm& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_norm<T>(stream_.get(), op.y.data<T>(), nullptr, op.rstd.data<T>(),
                       operands<T>(op.x, nullptr, op.rstd), op.weight.data<const T>(),
                       nullptr, static_cast<T>(op.epsilon));
    });
}

template <>
void Device::compute(const ops::RmsNormBackwardInput& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_norm_backward_input(stream_.get(), op.dx.data<T>(), op.dy.data<const T>(),
                                   operands<T>(op.x, nullptr, op.rstd),
                                   op.weight.data<const T>());
    });
}

template <>
void Device::compute(const ops::RmsNormBackwardWeight& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const auto of = operands<T>(op.x, nullptr, op.rstd);
        const Tensor workspace = scratch({norm_partials(of)}, op.x.dtype());
        launch_norm_backward_weight<T>(stream_.get(), workspace.data<T>(),
                                       op.d_weight.data<T>(), nullptr,
                                       op.dy.data<const T>(), of);
    });
}

}  // namespace lockstep::gpu

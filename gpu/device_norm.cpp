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

void Device::do_layer_norm(const Normalized& result, const Tensor& x,
                           const Tensor& weight, const Tensor& bias, double epsilon) {
    with_real(x.dtype(), [&]<typename T>(T) {
        launch_layer_norm(stream_.get(), result.y.data<T>(), result.mean.data<T>(),
                          result.rstd.data<T>(), operands<T>(x, result.mean, result.rstd),
                          weight.data<const T>(), bias.data<const T>(),
                          static_cast<T>(epsilon));
    });
}

void Device::do_layer_norm_backward_input(const Tensor& dx, const Tensor& dy,
                                          const Tensor& x, const Tensor& weight,
                                          const Normalized& saved) {
    with_real(x.dtype(), [&]<typename T>(T) {
        launch_layer_norm_backward_input(stream_.get(), dx.data<T>(), dy.data<const T>(),
                                         operands<T>(x, saved.mean, saved.rstd),
                                         weight.data<const T>());
    });
}

void Device::do_layer_norm_backward_weight(const Tensor& d_weight, const Tensor& d_bias,
                                           const Tensor& dy, const Tensor& x,
                                           const Normalized& saved) {
    const Shape& shape = x.shape();
    with_real(x.dtype(), [&]<typename T>(T) {
        const Tensor workspace =
            scratch({layer_norm_partials<T>(shape.rows(), shape.columns())}, x.dtype());
        launch_layer_norm_backward_weight(
            stream_.get(), workspace.data<T>(), d_weight.data<T>(), d_bias.data<T>(),
            dy.data<const T>(), operands<T>(x, saved.mean, saved.rstd));
    });
}

void Device::do_rms_norm(const Tensor& y, const Tensor& rstd, const Tensor& x,
                         const Tensor& weight, double epsilon) {
    with_real(x.dtype(), [&]<typename T>(T) {
        launch_rms_norm(stream_.get(), y.data<T>(), rstd.data<T>(), operands<T>(x, rstd),
                        weight.data<const T>(), static_cast<T>(epsilon));
    });
}

void Device::do_rms_norm_backward_input(const Tensor& dx, const Tensor& dy,
                                        const Tensor& x, const Tensor& weight,
                                        const Tensor& rstd) {
    with_real(x.dtype(), [&]<typename T>(T) {
        launch_rms_norm_backward_input(stream_.get(), dx.data<T>(), dy.data<const T>(),
                                       operands<T>(x, rstd), weight.data<const T>());
    });
}

void Device::do_rms_norm_backward_weight(const Tensor& d_weight, const Tensor& dy,
                                         const Tensor& x, const Tensor& rstd) {
    const Shape& shape = x.shape();
    with_real(x.dtype(), [&]<typename T>(T) {
        const Tensor workspace =
            scratch({rms_norm_partials<T>(shape.rows(), shape.columns())}, x.dtype());
        launch_rms_norm_backward_weight(stream_.get(), workspace.data<T>(),
                                        d_weight.data<T>(), dy.data<const T>(),
                                        operands<T>(x, rstd));
    });
}

}  // namespace lockstep::gpu

#include "gpu/device.hpp"
#include "gpu/kernels/softmax.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

void Device::do_softmax(const Tensor& y, const Tensor& x, const SoftmaxOptions& options) {
    const Shape& shape = x.shape();
    with_real(x.dtype(), [&]<typename T>(T) {
        if (options.causal)
            launch_causal_softmax(
                stream_.get(), y.data<T>(), x.data<const T>(), shape.rows(),
                shape.columns(),
                {shape[shape.dimensions() - 2], options.queries, options.keys});
        else
            launch_softmax(stream_.get(), y.data<T>(), x.data<const T>(), shape.rows(),
                           shape.columns());
    });
}

void Device::do_softmax_backward(const Tensor& dx, const Tensor& y, const Tensor& dy) {
    with_real(y.dtype(), [&]<typename T>(T) {
        launch_softmax_backward(stream_.get(), dx.data<T>(), y.data<const T>(),
                                dy.data<const T>(), y.shape().rows(),
                                y.shape().columns());
    });
}

void Device::do_cross_entropy(const Tensor& losses, const Tensor& logits,
                              const Tensor& targets) {
    check_indices(targets, logits.shape().columns());
    with_real(logits.dtype(), [&]<typename T>(T) {
        launch_cross_entropy(stream_.get(), losses.data<T>(), logits.data<const T>(),
                             targets.data<const std::int32_t>(), logits.shape().rows(),
                             logits.shape().columns());
    });
}

void Device::do_cross_entropy_backward(const Tensor& d_logits, const Tensor& logits,
                                       const Tensor& targets, double factor) {
    check_indices(targets, logits.shape().columns());
    with_real(logits.dtype(), [&]<typename T>(T) {
        launch_cross_entropy_backward(
            stream_.get(), d_logits.data<T>(), logits.data<const T>(),
            targets.data<const std::int32_t>(), logits.shape().rows(),
            logits.shape().columns(), static_cast<T>(factor));
    });
}

void Device::do_squared_error(const Tensor& loss, const Tensor& prediction,
                              const Tensor& target) {
    const Tensor workspace = workspace_for_reduction();
    with_real(prediction.dtype(), [&]<typename T>(T) {
        launch_squared_error(stream_.get(), workspace.bytes_begin(), loss.data<T>(),
                             prediction.data<const T>(), target.data<const T>(),
                             prediction.elements());
    });
}

void Device::do_squared_error_backward(const Tensor& d_prediction,
                                       const Tensor& prediction, const Tensor& target,
                                       double factor) {
    with_real(prediction.dtype(), [&]<typename T>(T) {
        launch_squared_error_backward(stream_.get(), d_prediction.data<T>(),
                                      prediction.data<const T>(), target.data<const T>(),
                                      prediction.elements(), static_cast<T>(2 * factor));
    });
}

}  // namespace lockstep::gpu

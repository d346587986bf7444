#include "gpu/device.hpp"
#include "gpu/kernels/activation.hpp"
#include "gpu/kernels/swiglu.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

void Device::do_tanh(const Tensor& y, const Tensor& x) {
    with_real(x.dtype(), [&]<typename T>(T) {
        launch_tanh(stream_.get(), y.data<T>(), x.data<const T>(), x.elements());
    });
}

void Device::do_tanh_backward(const Tensor& dx, const Tensor& y, const Tensor& dy) {
    with_real(y.dtype(), [&]<typename T>(T) {
        launch_tanh_backward(stream_.get(), dx.data<T>(), y.data<const T>(),
                             dy.data<const T>(), y.elements());
    });
}

void Device::do_gelu(const Tensor& y, const Tensor& x) {
    with_real(x.dtype(), [&]<typename T>(T) {
        launch_gelu(stream_.get(), y.data<T>(), x.data<const T>(), x.elements());
    });
}

void Device::do_gelu_backward(const Tensor& dx, const Tensor& x, const Tensor& dy) {
    with_real(x.dtype(), [&]<typename T>(T) {
        launch_gelu_backward(stream_.get(), dx.data<T>(), x.data<const T>(),
                             dy.data<const T>(), x.elements());
    });
}

void Device::do_swiglu(const Tensor& y, const Tensor& x) {
    with_real(x.dtype(), [&]<typename T>(T) {
        launch_swiglu(stream_.get(), y.data<T>(), x.data<const T>(), y.shape().rows(),
                      y.shape().columns());
    });
}

void Device::do_swiglu_backward(const Tensor& dx, const Tensor& x, const Tensor& dy) {
    with_real(x.dtype(), [&]<typename T>(T) {
        launch_swiglu_backward(stream_.get(), dx.data<T>(), x.data<const T>(),
                               dy.data<const T>(), dy.shape().rows(),
                               dy.shape().columns());
    });
}

}  // namespace lockstep::gpu

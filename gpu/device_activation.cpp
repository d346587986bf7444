#include "gpu/device.hpp"
#include "gpu/kernels/activation.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

template <>
void Device::compute(const ops::Tanh& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_tanh(stream_.get(), op.y.data<T>(), op.x.data<const T>(), op.x.elements());
    });
}

template <>
void Device::compute(const ops::TanhBackward& op) {
    with_real(op.y.dtype(), [&]<typename T>(T) {
        launch_tanh_backward(stream_.get(), op.dx.data<T>(), op.y.data<const T>(),
                             op.dy.data<const T>(), op.y.elements());
    });
}

template <>
void Device::compute(const ops::Gelu& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_gelu(stream_.get(), op.y.data<T>(), op.x.data<const T>(), op.x.elements());
    });
}

template <>
void Device::compute(const ops::GeluBackward& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_gelu_backward(stream_.get(), op.dx.data<T>(), op.x.data<const T>(),
                             op.dy.data<const T>(), op.x.elements());
    });
}

template <>
void Device::compute(const ops::Swiglu& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_swiglu(stream_.get(), op.y.data<T>(), op.x.data<const T>(),
                      op.y.shape().rows(), op.y.shape().columns());
    });
}

template <>
void Device::compute(const ops::SwigluBackward& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        launch_swiglu_backward(stream_.get(), op.dx.data<T>(), op.x.data<const T>(),
                               op.dy.data<const T>(), op.dy.shape().rows(),
                               op.dy.shape().columns());
    });
}

}  // namespace lockstep::gpu

#include "gpu/device.hpp"
#include "gpu/kernels/activation.hpp"

namespace lockstep::gpu {

template <>
void Device::compute(const ops::Tanh& op) {
    launch_tanh(stream_.get(), op.y, op.x, op.x.elements());
}

template <>
void Device::compute(const ops::TanhBackward& op) {
    launch_tanh_backward(stream_.get(), op.dx, op.y, op.dy, op.y.elements());
}

template <>
void Device::compute(const ops::Sigmoid& op) {
    launch_sigmoid(stream_.get(), op.y, op.x, op.x.elements());
}

template <>
void Device::compute(const ops::SigmoidBackward& op) {
    launch_sigmoid_backward(stream_.get(), op.dx, op.y, op.dy, op.y.elements());
}

template <>
void Device::compute(const ops::Gelu& op) {
    launch_gelu(stream_.get(), op.y, op.x, op.x.elements(), op.form);
}

template <>
void Device::compute(const ops::GeluBackward& op) {
    launch_gelu_backward(stream_.get(), op.dx, op.x, op.dy, op.x.elements(), op.form);
}

template <>
void Device::compute(const ops::Swiglu& op) {
    launch_swiglu(stream_.get(), op.y, op.x, op.y.shape().matrix_rows(),
                  op.y.shape().columns());
}

template <>
void Device::compute(const ops::SwigluBackward& op) {
    launch_swiglu_backward(stream_.get(), op.dx, op.x, op.dy, op.dy.shape().matrix_rows(),
                           op.dy.shape().columns());
}

}  // namespace lockstep::gpu

#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

// Eigen's erf for vectors.
#include <unsupported/Eigen/SpecialFunctions>

namespace lockstep::sim {

template <>
void CpuDevice::compute(const ops::Tanh& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const T* in = op.x.data<T>();
        map_lanes(
            op.x.elements(), op.y.data<T>(),
            [](const Lane<T>& a) -> Lane<T> { return a.tanh(); }, in);
    });
}

template <>
void CpuDevice::compute(const ops::TanhBackward& op) {
    with_real(op.y.dtype(), [&]<typename T>(T) {
        const T* in = op.y.data<T>();
        const T* gradient = op.dy.data<T>();
        map_lanes(op.y.elements(), op.dx.data<T>(), formulas::tanh_backward<Lane<T>>, in,
                  gradient);
    });
}

template <>
void CpuDevice::compute(const ops::Sigmoid& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const T* in = op.x.data<T>();
        map_lanes(op.x.elements(), op.y.data<T>(), formulas::sigmoid<Lane<T>>, in);
    });
}

template <>
void CpuDevice::compute(const ops::SigmoidBackward& op) {
    with_real(op.y.dtype(), [&]<typename T>(T) {
        const T* in = op.y.data<T>();
        const T* gradient = op.dy.data<T>();
        map_lanes(op.y.elements(), op.dx.data<T>(), formulas::sigmoid_backward<Lane<T>>,
                  in, gradient);
    });
}

template <>
void CpuDevice::compute(const ops::Gelu& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const T* in = op.x.data<T>();
        map_lanes(op.x.elements(), op.y.data<T>(),
                  op.form == GeluForm::tanh ? formulas::gelu_by_tanh<Lane<T>>
                                            : formulas::gelu<Lane<T>>,
                  in);
    });
}

template <>
void CpuDevice::compute(const ops::GeluBackward& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const T* in = op.x.data<T>();
        const T* gradient = op.dy.data<T>();
        map_lanes(op.x.elements(), op.dx.data<T>(),
                  op.form == GeluForm::tanh ? formulas::gelu_by_tanh_backward<Lane<T>>
                                            : formulas::gelu_backward<Lane<T>>,
                  in, gradient);
    });
}

template <>
void CpuDevice::compute(const ops::Swiglu& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t width = op.y.shape().columns();
        for (std::int64_t row = 0; row < op.y.shape().rows(); ++row) {
            const T* gate = op.x.data<T>() + 2 * row * width;
            map_lanes(width, op.y.data<T>() + row * width, formulas::swiglu<Lane<T>>,
                      gate, gate + width);
        }
    });
}

template <>
void CpuDevice::compute(const ops::SwigluBackward& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t width = op.dy.shape().columns();
        for (std::int64_t row = 0; row < op.dy.shape().rows(); ++row) {
            const T* gate = op.x.data<T>() + 2 * row * width;
            const T* gradient = op.dy.data<T>() + row * width;
            T* d_gate = op.dx.data<T>() + 2 * row * width;
            map_lanes(width, d_gate, formulas::swiglu_backward_gate<Lane<T>>, gate,
                      gate + width, gradient);
            map_lanes(width, d_gate + width, formulas::swiglu<Lane<T>>, gate, gradient);
        }
    });
}

}  // namespace lockstep::sim

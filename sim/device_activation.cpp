#include "sim/device.hpp"
#include "sim/lane_functions.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::sim {

template <>
void CpuDevice::compute(const ops::Tanh& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const T* in = op.x.data<T>();
        map_lanes(
            op.x.elements(), op.y.data<T>(),
            [](const Lane<T>& a) { return tanh_lane<T>(a); }, in);
    });
}

template <>
void CpuDevice::compute(const ops::TanhBackward& op) {
    with_real(op.y.dtype(), [&]<typename T>(T) {
        const T* in = op.y.data<T>();
        const T* gradient = op.dy.data<T>();
        map_lanes(
            op.y.elements(), op.dx.data<T>(),
            [](const auto&... x) -> Lane<T> {
                return formulas::tanh_backward<Lane<T>>(x...);
            },
            in, gradient);
    });
}

template <>
void CpuDevice::compute(const ops::Sigmoid& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const T* in = op.x.data<T>();
        map_lanes(
            op.x.elements(), op.y.data<T>(),
            [](const auto&... x) -> Lane<T> { return formulas::sigmoid<Lane<T>>(x...); },
            in);
    });
}

template <>
void CpuDevice::compute(const ops::SigmoidBackward& op) {
    with_real(op.y.dtype(), [&]<typename T>(T) {
        const T* in = op.y.data<T>();
        const T* gradient = op.dy.data<T>();
        map_lanes(
            op.y.elements(), op.dx.data<T>(),
            [](const auto&... x) -> Lane<T> {
                return formulas::sigmoid_backward<Lane<T>>(x...);
            },
            in, gradient);
    });
}

template <>
void CpuDevice::compute(const ops::Gelu& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const T* in = op.x.data<T>();
        const auto map = [&](const auto& gelu) {
            map_lanes(op.x.elements(), op.y.data<T>(), gelu, in);
        };
        if (op.form == GeluForm::tanh)
            map([](const Lane<T>& x) -> Lane<T> {
                return formulas::gelu_by_tanh<Lane<T>>(x);
            });
        else
            map([](const Lane<T>& x) -> Lane<T> { return formulas::gelu<Lane<T>>(x); });
    });
}

template <>
void CpuDevice::compute(const ops::GeluBackward& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const T* in = op.x.data<T>();
        const T* gradient = op.dy.data<T>();
        const auto map = [&](const auto& backward) {
            map_lanes(op.x.elements(), op.dx.data<T>(), backward, in, gradient);
        };
        if (op.form == GeluForm::tanh)
            map([](const Lane<T>& x, const Lane<T>& dy) -> Lane<T> {
                return formulas::gelu_by_tanh_backward<Lane<T>>(x, dy);
            });
        else
            map([](const Lane<T>& x, const Lane<T>& dy) -> Lane<T> {
                return formulas::gelu_backward<Lane<T>>(x, dy);
            });
    });
}

template <>
void CpuDevice::compute(const ops::Swiglu& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t width = op.y.shape().columns();
        each_row(op.y.shape().matrix_rows(), width, [&](std::int64_t row) {
            const T* gate = op.x.data<T>() + 2 * row * width;
            map_lanes(
                width, op.y.data<T>() + row * width,
                [](const auto&... x) -> Lane<T> {
                    return formulas::swiglu<Lane<T>>(x...);
                },
                gate, gate + width);
        });
    });
}

template <>
void CpuDevice::compute(const ops::SwigluBackward& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t width = op.dy.shape().columns();
        each_row(op.dy.shape().matrix_rows(), width, [&](std::int64_t row) {
            const T* gate = op.x.data<T>() + 2 * row * width;
            const T* gradient = op.dy.data<T>() + row * width;
            T* d_gate = op.dx.data<T>() + 2 * row * width;
            map_lanes(
                width, d_gate,
                [](const auto&... x) -> Lane<T> {
                    return formulas::swiglu_backward_gate<Lane<T>>(x...);
                },
                gate, gate + width, gradient);
            map_lanes(
                width, d_gate + width,
                [](const auto&... x) -> Lane<T> {
                    return formulas::swiglu<Lane<T>>(x...);
                },
                gate, gradient);
        });
    });
}

}  // namespace lockstep::sim

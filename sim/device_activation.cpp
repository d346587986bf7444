#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

// Eigen's erf for vectors.
#include <unsupported/Eigen/SpecialFunctions>

namespace lockstep::sim {

void Device::do_tanh(const Tensor& y, const Tensor& x) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const T* in = x.data<T>();
        map_lanes(
            x.elements(), y.data<T>(),
            [](const Lane<T>& a) -> Lane<T> { return a.tanh(); }, in);
    });
}

void Device::do_tanh_backward(const Tensor& dx, const Tensor& y, const Tensor& dy) {
    with_real(y.dtype(), [&]<typename T>(T) {
        const T* in = y.data<T>();
        const T* gradient = dy.data<T>();
        map_lanes(y.elements(), dx.data<T>(), formulas::tanh_backward<Lane<T>>, in,
                  gradient);
    });
}

void Device::do_gelu(const Tensor& y, const Tensor& x) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const T* in = x.data<T>();
        map_lanes(x.elements(), y.data<T>(), formulas::gelu<Lane<T>>, in);
    });
}

void Device::do_gelu_backward(const Tensor& dx, const Tensor& x, const Tensor& dy) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const T* in = x.data<T>();
        const T* gradient = dy.data<T>();
        map_lanes(x.elements(), dx.data<T>(), formulas::gelu_backward<Lane<T>>, in,
                  gradient);
    });
}

void Device::do_swiglu(const Tensor& y, const Tensor& x) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const std::int64_t width = y.shape().columns();
        for (std::int64_t row = 0; row < y.shape().rows(); ++row) {
            const T* gate = x.data<T>() + 2 * row * width;
            map_lanes(width, y.data<T>() + row * width, formulas::swiglu<Lane<T>>, gate,
                      gate + width);
        }
    });
}

void Device::do_swiglu_backward(const Tensor& dx, const Tensor& x, const Tensor& dy) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const std::int64_t width = dy.shape().columns();
        for (std::int64_t row = 0; row < dy.shape().rows(); ++row) {
            const T* gate = x.data<T>() + 2 * row * width;
            const T* gradient = dy.data<T>() + row * width;
            T* d_gate = dx.data<T>() + 2 * row * width;
            map_lanes(width, d_gate, formulas::swiglu_backward_gate<Lane<T>>, gate,
                      gate + width, gradient);
            map_lanes(width, d_gate + width, formulas::swiglu<Lane<T>>, gate, gradient);
        }
    });
}

}  // namespace lockstep::sim

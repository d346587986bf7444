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

}  // namespace lockstep::sim

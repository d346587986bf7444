#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "sim/matmul.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::sim {

void Device::do_matmul(const Tensor& destination, const Tensor& a, const Tensor& b,
                       const MatmulOptions& options) {
    const std::int64_t m = options.transpose_a ? a.shape().columns() : a.shape().rows();
    const std::int64_t k = options.transpose_a ? a.shape().rows() : a.shape().columns();
    const std::int64_t n = options.transpose_b ? b.shape().rows() : b.shape().columns();
    with_real(a.dtype(), [&]<typename T>(T) {
        multiply_matrices<T>(
            {destination.data<T>(), a.data<T>(), b.data<T>(), m, k, n, options});
    });
}

void Device::do_add_bias(const Tensor& y, const Tensor& bias) {
    with_real(y.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = y.shape().columns();
        const T* added = bias.data<T>();
        for (std::int64_t row = 0; row < y.shape().rows(); ++row) {
            T* values = y.data<T>() + row * columns;
            map_lanes(
                columns, values,
                [](const auto& a, const auto& b) -> Lane<T> { return a + b; },
                static_cast<const T*>(values), added);
        }
    });
}

void Device::do_accumulate_rows(const Tensor& destination, const Tensor& x) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = x.shape().columns();
        const T* values = x.data<T>();
        add_column_sums(x.shape().rows(), columns, destination.data<T>(),
                        [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                            return load(values + row * columns + column, count);
                        });
    });
}

}  // namespace lockstep::sim

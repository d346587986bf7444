#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "sim/matmul.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::sim {

template <>
void CpuDevice::compute(const ops::Matmul& op) {
    with_real(op.a.dtype(), [&]<typename T>(T) {
        multiply_matrices<T>({op.destination.data<T>(), op.a.data<T>(), op.b.data<T>(),
                              op.m(), op.k(), op.n(), op.options});
    });
}

template <>
void CpuDevice::compute(const ops::AddBias& op) {
    with_real(op.y.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.y.shape().columns();
        const T* added = op.bias.data<T>();
        for (std::int64_t row = 0; row < op.y.shape().rows(); ++row) {
            T* values = op.y.data<T>() + row * columns;
            map_lanes(
                columns, values,
                [](const auto& a, const auto& b) -> Lane<T> { return a + b; },
                static_cast<const T*>(values), added);
        }
    });
}

template <>
void CpuDevice::compute(const ops::ScaleRows& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const T* factors = op.factors.data<T>();
        for (std::int64_t row = 0; row < op.x.shape().rows(); ++row)
            compute(ops::Scale{op.x.flat().slice(row * columns, columns), factors[row]});
    });
}

template <>
void CpuDevice::compute(const ops::RowProducts& op) {
    compute(ops::HeadRowProducts{op.destination, one_head(op.a), one_head(op.b)});
}

template <>
void CpuDevice::compute(const ops::AccumulateRows& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const T* values = op.x.data<T>();
        add_column_sums(op.x.shape().rows(), columns, op.destination.data<T>(),
                        [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                            return load(values + row * columns + column, count);
                        });
    });
}

}  // namespace lockstep::sim

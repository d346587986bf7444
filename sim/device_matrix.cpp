#include <vector>

#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "sim/matmul.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::sim {

template <>
void CpuDevice::compute(const ops::Matmul& op) {
    with_real(op.a.dtype(), [&]<typename T>(T) {
        multiply_matrices<T>({op.destination.data<T>(), op.a.data<T>(), op.b.data<T>(),
                              op.m(), op.k(), op.n(), op.options});
    });
}

template <>
void CpuDevice::compute(const ops::GroupedMatmul& op) {
    op.compute([&](const ops::Matmul& product) { compute(product); },
               [&](const Tensor& matrix) {
                   compute(ops::Fill{matrix, 0});
               });
}

template <>
void CpuDevice::compute(const ops::AddBias& op) {
    with_real(op.y.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.y.shape().columns();
        const T* added = op.bias.data<T>();
        each_row(op.y.shape().matrix_rows(), columns, [&](std::int64_t row) {
            T* values = op.y.data<T>() + row * columns;
            map_lanes(
                columns, values,
                [](const auto& a, const auto& b) -> Lane<T> { return a + b; },
                static_cast<const T*>(values), added);
        });
    });
}

template <>
void CpuDevice::compute(const ops::ScaleRows& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const T* factors = op.factors.data<T>();
        for (std::int64_t row = 0; row < op.x.shape().matrix_rows(); ++row)
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
        add_column_sums(op.x.shape().matrix_rows(), columns, op.destination.data<T>(),
                        [&](std::int64_t row, std::int64_t column, std::int64_t count) {
                            return load(values + row * columns + column, count);
                        });
    });
}

namespace {

/// Orthonormalizes columns of `n` numbers, stored one column after the other.
void orthonormalize_columns(std::vector<double>& columns, std::int64_t n, double least) {
    const auto product = [n](const double* a, const double* b) {
        return sum_lanes(
            n, [](const auto& x, const auto& y) { return x * y; }, a, b);
    };
    double* const first = columns.data();
    for (double* own = first; own < first + columns.size(); own += n) {
        const double before = product(own, own);
        for (int pass = 0; pass < 2; ++pass)
            for (const double* other = first; other < own; other += n) {
                const double along = product(other, own);
                map_lanes(
                    n, own,
                    [along](const auto& x, const auto& y) -> Lane<double> {
                        return x - along * y;
                    },
                    static_cast<const double*>(own), other);
            }
        const double factor = formulas::unit_factor(before, product(own, own), least);
        map_lanes(
            n, own, [factor](const auto& x) -> Lane<double> { return factor * x; },
            static_cast<const double*>(own));
    }
}

}  // namespace

template <>
void CpuDevice::compute(const ops::Orthonormalize& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t rows = op.x.shape().matrix_rows();
        const std::int64_t r = op.x.shape().columns();
        T* const values = op.x.data<T>();
        std::vector<double> columns(static_cast<std::size_t>(rows * r));
        const auto each = [&](const auto& move) {
            for (std::int64_t column = 0; column < r; ++column)
                for (std::int64_t row = 0; row < rows; ++row)
                    move(columns[static_cast<std::size_t>(column * rows + row)],
                         values[row * r + column]);
        };
        each([](double& to, T from) { to = from; });
        orthonormalize_columns(columns, rows, formulas::kRounding<T>);
        each([](double from, T& to) { to = static_cast<T>(from); });
    });
}

}  // namespace lockstep::sim

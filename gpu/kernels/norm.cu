#include <cmath>
#include <type_traits>

#include "gpu/kernels/columns.cuh"
#include "gpu/kernels/norm.hpp"
#include "gpu/kernels/rows.cuh"

namespace lockstep::gpu {

namespace {

/// Mean and sum of squared deviations of groups of values (Chan, Golub & LeVeque,
/// "Algorithms for computing the sample variance", 1983). This avoids the difference of
/// large numbers in E[x^2] - E[x]^2.
template <typename T>
struct Moments {
    T count = 0;
    T mean = 0;
    T squares = 0;

    __device__ void merge(T other_count, T other_mean, T other_squares) {
        const T total = count + other_count;
        const T delta = other_mean - mean;
        squares += other_squares + delta * delta * (count * (other_count / total));
        mean += delta * (other_count / total);
        count = total;
    }
};

/// Sums this thread's part of the row. Leaves the last sweep in `held`.
template <typename T, typename Plan, typename S>
__device__ Moments<T> moments_of_thread(const Row<T, Plan>& row, const S* x,
                                        Pack<T, Plan::kWidth> (&held)[kHeld]) {
    Moments<T> moments;
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.read(base, held, x);
        T count = 0, sum = 0, squares = 0;
        row.each(base, [&](int k, std::int64_t pack) {
            count += row.count(pack);
            for (int lane = 0; lane < Plan::kWidth; ++lane)
                sum += held[k].value[lane];
        });
        if (count == 0) break;
        const T mean = sum / count;
        row.each(base, [&](int k, std::int64_t pack) {
            for (int lane = 0; lane < Plan::kWidth; ++lane) {
                if (lane >= row.count(pack)) break;
                const T deviation = held[k].value[lane] - mean;
                squares += deviation * deviation;
            }
        });
        moments.merge(count, mean, squares);
    }
    return moments;
}

/// The value that is subtracted from a row, and the mean square of the differences.
template <typename T>
struct Spread {
    T mean;
    T variance;
};

/// Leaves the last sweep in `held`. Without a mean, nothing is subtracted.
template <bool kMean, typename T, typename Plan, typename S>
__device__ Spread<T> spread(const Row<T, Plan>& row, const S* x,
                            Pack<T, Plan::kWidth> (&held)[kHeld]) {
    if constexpr (kMean) {
        const Moments<T> part = moments_of_thread(row, x, held);
        const T mean = row.sum(part.count * part.mean) / row.columns();
        const T shift = part.mean - mean;
        return {mean, row.sum(part.squares + part.count * shift * shift) / row.columns()};
    } else {
        T squares = 0;
        for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
            row.read(base, held, x);
            row.each(base, [&](int k, std::int64_t) {
                for (int lane = 0; lane < Plan::kWidth; ++lane)
                    squares += held[k].value[lane] * held[k].value[lane];
            });
        }
        return {0, row.sum(squares) / row.columns()};
    }
}

template <typename S, typename Plan, bool kMean>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    norm_rows(S* y, Computed<S>* mean, Computed<S>* rstd, NormOperands operands,
              const S* weight, const S* bias, Computed<S> epsilon, MatrixShape shape) {
    using T = Computed<S>;
    const Row<T, Plan> row(shape);
    if (!row.exists()) return;
    Pack<T, Plan::kWidth> held[kHeld];
    const Spread<T> of_row = spread<kMean>(row, operands.x.as<S>(), held);
    const T scale = 1 / std::sqrt(of_row.variance + epsilon);
    if (row.first_thread()) {
        if (kMean) mean[row.index()] = of_row.mean;
        rstd[row.index()] = scale;
    }
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        if (!Plan::kOnce) row.read(base, held, operands.x.as<const S>());
        row.each(base, [&](int k, std::int64_t pack) {
            const auto gain = row.read_of_columns(weight, pack);
            for (int lane = 0; lane < Plan::kWidth; ++lane)
                held[k].value[lane] =
                    (held[k].value[lane] - of_row.mean) * scale * gain.value[lane];
            if constexpr (kMean) {
                const auto added = row.read_of_columns(bias, pack);
                for (int lane = 0; lane < Plan::kWidth; ++lane)
                    held[k].value[lane] += added.value[lane];
            }
            row.write(y, pack, held[k]);
        });
    }
}

template <typename S, typename Plan, bool kMean>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    norm_backward_rows(S* dx, const S* dy, NormOperands operands, const S* weight,
                       MatrixShape shape) {
    using T = Computed<S>;
    const Row<T, Plan> row(shape);
    if (!row.exists()) return;
    const T mean = kMean ? operands.mean.as<T>()[row.index()] : T{0};
    const T rstd = operands.rstd.as<T>()[row.index()];
    Pack<T, Plan::kWidth> g[kHeld], normalized[kHeld];
    const S* x = operands.x.as<const S>();
    const auto prepare = [&](int k, std::int64_t pack) {
        const auto gain = row.read_of_columns(weight, pack);
        for (int lane = 0; lane < Plan::kWidth; ++lane) {
            g[k].value[lane] *= gain.value[lane];
            normalized[k].value[lane] = (normalized[k].value[lane] - mean) * rstd;
        }
    };
    T along_ones = 0, along_x = 0;
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.read(base, g, dy, normalized, x);
        row.each(base, prepare);
        row.each(base, [&](int k, std::int64_t) {
            for (int lane = 0; lane < Plan::kWidth; ++lane) {
                along_ones += g[k].value[lane];
                along_x += g[k].value[lane] * normalized[k].value[lane];
            }
        });
    }
    along_ones = kMean ? row.sum(along_ones) / row.columns() : T{0};
    along_x = row.sum(along_x) / row.columns();
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        if (!Plan::kOnce) {
            row.read(base, g, dy, normalized, x);
            row.each(base, prepare);
        }
        row.each(base, [&](int k, std::int64_t pack) {
            for (int lane = 0; lane < Plan::kWidth; ++lane)
                g[k].value[lane] = rstd * (g[k].value[lane] - along_ones -
                                           normalized[k].value[lane] * along_x);
            row.write(dx, pack, g[k]);
        });
    }
}

/// The terms of d_weight and, with a mean, of d_bias.
template <typename S, int kWidth, bool kMean>
struct GradientTerms {
    using T = Computed<S>;
    static constexpr int kSums = kMean ? 2 : 1;
    const S* dy;
    NormOperands operands;
    bool vectors;

    __device__ void add(Pack<T, kWidth> (&sums)[kSums], std::int64_t row,
                        std::int64_t column) const {
        const std::int64_t at = row * operands.columns + column;
        const Pack<T, kWidth> x = load<kWidth>(operands.x.as<S>() + at, vectors);
        const Pack<T, kWidth> gradient = load<kWidth>(dy + at, vectors);
        const T mean = kMean ? operands.mean.as<T>()[row] : T{0};
        const T rstd = operands.rstd.as<T>()[row];
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
            sums[0].value[lane] += gradient.value[lane] * ((x.value[lane] - mean) * rstd);
            if constexpr (kMean) sums[1].value[lane] += gradient.value[lane];
        }
    }
};

/// Calls `body` with a constant that says whether the norm subtracts the mean.
template <typename Body>
void with_kind(const NormOperands& operands, const Body& body) {
    if (operands.mean.data != nullptr)
        body(std::bool_constant<true>());
    else
        body(std::bool_constant<false>());
}

}  // namespace

void launch_norm(cudaStream_t stream, Numbers y, Numbers mean, Numbers rstd,
                 const NormOperands& operands, Numbers weight, Numbers bias,
                 double epsilon) {
    with_type(y, [&]<typename S>(S) {
        using T = Computed<S>;
        const MatrixShape shape{operands.rows, operands.columns,
                                aligned(y, operands.x, weight, bias)};
        with_kind(operands, [&]<bool kMean>(std::bool_constant<kMean>) {
            with_plan<S, Keeps::much>(shape, [&]<typename Plan>(Plan, int blocks) {
                launch(stream, norm_rows<S, Plan, kMean>, blocks, Plan::kThreads,
                       y.as<S>(), mean.as<T>(), rstd.as<T>(), operands, weight.as<S>(),
                       bias.as<S>(), static_cast<T>(epsilon), shape);
            });
        });
    });
}

void launch_norm_backward_input(cudaStream_t stream, Numbers dx, Numbers dy,
                                const NormOperands& operands, Numbers weight) {
    with_type(dx, [&]<typename S>(S) {
        const MatrixShape shape{operands.rows, operands.columns,
                                aligned(dx, dy, operands.x, weight)};
        with_kind(operands, [&]<bool kMean>(std::bool_constant<kMean>) {
            with_plan<S, Keeps::much>(shape, [&]<typename Plan>(Plan, int blocks) {
                launch(stream, norm_backward_rows<S, Plan, kMean>, blocks, Plan::kThreads,
                       dx.as<S>(), dy.as<S>(), operands, weight.as<S>(), shape);
            });
        });
    });
}

std::int64_t norm_partials(const NormOperands& operands) {
    return with_type(operands.x, [&]<typename S>(S) {
        return (operands.mean.data != nullptr ? 2 : 1) *
               column_slabs<S>(operands.rows, operands.columns) * operands.columns;
    });
}

void launch_norm_backward_weight(cudaStream_t stream, Numbers workspace, Numbers d_weight,
                                 Numbers d_bias, Numbers dy,
                                 const NormOperands& operands) {
    with_type(operands.x, [&]<typename S>(S) {
        const MatrixShape shape{operands.rows, operands.columns, aligned(dy, operands.x)};
        const std::int64_t slabs = column_slabs<S>(operands.rows, operands.columns);
        const MatrixShape partials{slabs, operands.columns, true};
        with_kind(operands, [&]<bool kMean>(std::bool_constant<kMean>) {
            with_column_width<S>(operands.columns, [&]<int kWidth>(Constant<kWidth>) {
                const GradientTerms<S, kWidth, kMean> terms{dy.as<S>(), operands,
                                                            shape.vectors};
                launch_column_sums<kWidth, false>(stream, workspace.as<Computed<S>>(),
                                                  terms, shape, slabs);
                add_column_sums<kWidth>(stream, d_weight.as<S>(),
                                        workspace.as<Computed<S>>(), partials);
                if (kMean)
                    add_column_sums<kWidth>(
                        stream, d_bias.as<S>(),
                        workspace.as<Computed<S>>() + slabs * operands.columns, partials);
            });
        });
    });
}

}  // namespace lockstep::gpu

#include <cmath>

#include "gpu/kernels/columns.cuh"
#include "gpu/kernels/rms_norm.hpp"
#include "gpu/kernels/rows.cuh"

namespace lockstep::gpu {

namespace {

template <typename T, int kWidth, int kTeam, bool kOnce>
__global__ void __launch_bounds__(kRowThreads)
    rms_norm_rows(T* y, T* rstd, const T* x, const T* weight, T epsilon, RowShape shape) {
    const Row<T, kWidth, kTeam> row(shape);
    if (!row.exists()) return;
    Pack<T, kWidth> held[kHeld];
    const auto read = [&](int k, std::int64_t pack) { held[k] = row.read(x, pack); };
    T squares = 0;
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.each(base, read);
        row.each(base, [&](int k, std::int64_t) {
            for (int lane = 0; lane < kWidth; ++lane)
                squares += held[k].value[lane] * held[k].value[lane];
        });
    }
    const T scale = 1 / std::sqrt(row.sum(squares) / row.columns() + epsilon);
    if (row.first_thread()) rstd[row.index()] = scale;
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        if (!kOnce) row.each(base, read);
        row.each(base, [&](int k, std::int64_t pack) {
            const auto gain = row.read_of_columns(weight, pack);
            for (int lane = 0; lane < kWidth; ++lane)
                held[k].value[lane] = held[k].value[lane] * scale * gain.value[lane];
            row.write(y, pack, held[k]);
        });
    }
}

template <typename T, int kWidth, int kTeam, bool kOnce>
__global__ void __launch_bounds__(kRowThreads)
    rms_norm_backward_rows(T* dx, const T* dy, RmsNormOperands<T> of, const T* weight,
                           RowShape shape) {
    const Row<T, kWidth, kTeam> row(shape);
    if (!row.exists()) return;
    const T rstd = of.rstd[row.index()];
    Pack<T, kWidth> g[kHeld], normalized[kHeld];
    const auto read = [&](int k, std::int64_t pack) {
        g[k] = row.read(dy, pack);
        normalized[k] = row.read(of.x, pack);
    };
    const auto prepare = [&](int k, std::int64_t pack) {
        const auto gain = row.read_of_columns(weight, pack);
        for (int lane = 0; lane < kWidth; ++lane) {
            g[k].value[lane] *= gain.value[lane];
            normalized[k].value[lane] *= rstd;
        }
    };
    T along_x = 0;
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.each(base, read);
        row.each(base, prepare);
        row.each(base, [&](int k, std::int64_t) {
            for (int lane = 0; lane < kWidth; ++lane)
                along_x += g[k].value[lane] * normalized[k].value[lane];
        });
    }
    along_x = row.sum(along_x) / row.columns();
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        if (!kOnce) {
            row.each(base, read);
            row.each(base, prepare);
        }
        row.each(base, [&](int k, std::int64_t pack) {
            for (int lane = 0; lane < kWidth; ++lane)
                g[k].value[lane] =
                    rstd * (g[k].value[lane] - normalized[k].value[lane] * along_x);
            row.write(dx, pack, g[k]);
        });
    }
}

/// Terms of d_weight.
template <typename T, int kWidth>
struct GradientTerms {
    static constexpr int kSums = 1;
    const T* dy;
    RmsNormOperands<T> of;
    bool vectors;

    __device__ void add(Pack<T, kWidth> (&sums)[1], std::int64_t row,
                        std::int64_t column) const {
        const std::int64_t at = row * of.columns + column;
        const Pack<T, kWidth> x = load<kWidth>(of.x + at, vectors);
        const Pack<T, kWidth> gradient = load<kWidth>(dy + at, vectors);
        const T rstd = of.rstd[row];
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane)
            sums[0].value[lane] += gradient.value[lane] * (x.value[lane] * rstd);
    }
};

template <int kWidth, typename T>
void rms_norm_backward_weight(cudaStream_t stream, T* workspace, T* d_weight, const T* dy,
                              const RmsNormOperands<T>& of) {
    const ColumnShape shape{of.rows, of.columns, aligned(dy, of.x)};
    const std::int64_t slabs = slabs_of(of.rows, of.columns, kWidth);
    launch_column_sums<kWidth, false>(
        stream, workspace, GradientTerms<T, kWidth>{dy, of, shape.vectors}, shape, slabs);
    add_column_sums<kWidth>(stream, d_weight, workspace, {slabs, of.columns, true});
}

}  // namespace

template <typename T>
void launch_rms_norm(cudaStream_t stream, T* y, T* rstd, const RmsNormOperands<T>& of,
                     const T* weight, T epsilon) {
    const RowShape shape{of.rows, of.columns, aligned(y, of.x, weight)};
    with_plan_of<T>(shape, [&]<typename Plan>(Plan, int blocks) {
        launch(stream, rms_norm_rows<T, Plan::kWidth, Plan::kTeam, Plan::kOnce>, blocks,
               kRowThreads, y, rstd, of.x, weight, epsilon, shape);
    });
}

template <typename T>
void launch_rms_norm_backward_input(cudaStream_t stream, T* dx, const T* dy,
                                    const RmsNormOperands<T>& of, const T* weight) {
    const RowShape shape{of.rows, of.columns, aligned(dx, dy, of.x, weight)};
    with_plan_of<T>(shape, [&]<typename Plan>(Plan, int blocks) {
        launch(stream, rms_norm_backward_rows<T, Plan::kWidth, Plan::kTeam, Plan::kOnce>,
               blocks, kRowThreads, dx, dy, of, weight, shape);
    });
}

template <typename T>
std::int64_t rms_norm_partials(std::int64_t rows, std::int64_t columns) {
    return column_slabs<T>(rows, columns) * columns;
}

template <typename T>
void launch_rms_norm_backward_weight(cudaStream_t stream, T* workspace, T* d_weight,
                                     const T* dy, const RmsNormOperands<T>& of) {
    if (column_width<T>(of.columns) == 1)
        rms_norm_backward_weight<1>(stream, workspace, d_weight, dy, of);
    else
        rms_norm_backward_weight<kFullWidth<T>>(stream, workspace, d_weight, dy, of);
}

template void launch_rms_norm(cudaStream_t, float*, float*, const RmsNormOperands<float>&,
                              const float*, float);
template void launch_rms_norm(cudaStream_t, double*, double*,
                              const RmsNormOperands<double>&, const double*, double);
template void launch_rms_norm_backward_input(cudaStream_t, float*, const float*,
                                             const RmsNormOperands<float>&, const float*);
template void launch_rms_norm_backward_input(cudaStream_t, double*, const double*,
                                             const RmsNormOperands<double>&,
                                             const double*);
template std::int64_t rms_norm_partials<float>(std::int64_t, std::int64_t);
template std::int64_t rms_norm_partials<double>(std::int64_t, std::int64_t);
template void launch_rms_norm_backward_weight(cudaStream_t, float*, float*, const float*,
                                              const RmsNormOperands<float>&);
template void launch_rms_norm_backward_weight(cudaStream_t, double*, double*,
                                              const double*,
                                              const RmsNormOperands<double>&);

}  // namespace lockstep::gpu

#pragma once

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/team.cuh"

namespace lockstep::gpu {

// Sums over the rows of a matrix. A block sums a slab of rows within a strip of columns.
// Each of its warps sums every eighth row, with a pack of columns per thread; then the
// warps' sums are added in order. The slabs' sums are the rows of a smaller matrix, which
// is then summed in one slab. The number of slabs and the order of the sum depend only on
// the shape.

inline constexpr int kColumnThreads = 256;
inline constexpr int kColumnWarps = kColumnThreads / kWarp;

/// Returns the number of slabs that fill a GPU; fewer if a warp would have less than
/// eight rows.
constexpr std::int64_t slabs_of(std::int64_t rows, std::int64_t columns, int width) {
    constexpr std::int64_t kBlocks = 1024;
    const std::int64_t most = kBlocks / divided_up(columns, width * kWarp);
    const std::int64_t worth = divided_up(rows, 8 * kColumnWarps);
    const std::int64_t slabs = most < worth ? most : worth;
    return slabs > 1 ? slabs : 1;
}

/// Calls `body` with a constant, the number of columns that a thread sums: the size of a
/// full pack if full packs divide each row, otherwise 1.
template <typename S, typename Body>
void with_column_width(std::int64_t columns, const Body& body) {
    with_width<S>(columns % kFullWidth<S> == 0, body);
}

template <typename S>
constexpr std::int64_t column_slabs(std::int64_t rows, std::int64_t columns) {
    return slabs_of(rows, columns, columns % kFullWidth<S> == 0 ? kFullWidth<S> : 1);
}

/// `Terms` has `kSums` (the number of sums that are computed at once) and `add(Pack
/// (&sums)[kSums], row, column)`. Writes sums[s][slab][column]; with kAdds, adds to it.
template <typename S, int kWidth, bool kAdds, typename Terms>
__global__ void __launch_bounds__(kColumnThreads)
    column_sums(S* sums, Terms terms, MatrixShape shape, std::int64_t strips,
                std::int64_t slabs) {
    using T = Computed<S>;
    __shared__ Pack<T, kWidth> of_warp[kColumnWarps][kWarp];
    const auto warp = static_cast<int>(threadIdx.x / kWarp);
    const auto lane = static_cast<int>(threadIdx.x % kWarp);
    const std::int64_t slab = blockIdx.x / strips;
    const std::int64_t strip = blockIdx.x - slab * strips;
    const std::int64_t column = (strip * kWarp + lane) * kWidth;
    const std::int64_t per_slab = divided_up(shape.rows, slabs);
    const std::int64_t begin = slab * per_slab;
    const std::int64_t end =
        begin + per_slab < shape.rows ? begin + per_slab : shape.rows;

    Pack<T, kWidth> of_thread[Terms::kSums] = {};
    if (column < shape.columns) {
#pragma unroll 8
        for (std::int64_t row = begin + warp; row < end; row += kColumnWarps)
            terms.add(of_thread, row, column);
    }
    for (int s = 0; s < Terms::kSums; ++s) {
        of_warp[warp][lane] = of_thread[s];
        __syncthreads();
        S* to = sums + (s * slabs + slab) * shape.columns + column;
        for (int i = warp; i < kWidth && column < shape.columns; i += kColumnWarps) {
            T sum = kAdds ? T{to[i]} : T{0};
            for (int w = 0; w < kColumnWarps; ++w)
                sum += of_warp[w][lane].value[i];
            to[i] = static_cast<S>(sum);
        }
        __syncthreads();
    }
}

/// The rows of a matrix, as terms.
template <typename S, int kWidth>
struct RowTerms {
    using T = Computed<S>;
    static constexpr int kSums = 1;
    const S* matrix;
    std::int64_t columns;
    bool vectors;

    __device__ void add(Pack<T, kWidth> (&sums)[1], std::int64_t row,
                        std::int64_t column) const {
        const Pack<T, kWidth> values =
            load<kWidth>(matrix + row * columns + column, vectors);
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane)
            sums[0].value[lane] += values.value[lane];
    }
};

template <int kWidth, bool kAdds, typename S, typename Terms>
void launch_column_sums(cudaStream_t stream, S* sums, const Terms& terms,
                        const MatrixShape& shape, std::int64_t slabs) {
    const std::int64_t strips = divided_up(shape.columns, kWidth * kWarp);
    launch(stream, column_sums<S, kWidth, kAdds, Terms>, static_cast<int>(strips * slabs),
           kColumnThreads, sums, terms, shape, strips, slabs);
}

/// destination (columns) += the sum of the rows of `matrix`, in one slab.
template <int kWidth, typename To, typename From>
void add_column_sums(cudaStream_t stream, To* destination, const From* matrix,
                     const MatrixShape& shape) {
    launch_column_sums<kWidth, true>(
        stream, destination, RowTerms<From, kWidth>{matrix, shape.columns, shape.vectors},
        shape, 1);
}

}  // namespace lockstep::gpu

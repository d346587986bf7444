#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/scatter.hpp"
#include "gpu/kernels/sort.cuh"
#include "gpu/kernels/tiles.cuh"

namespace lockstep::gpu {

namespace {

template <typename T, int kWidth>
__device__ void add_to(Pack<T, kWidth>& sum, const Pack<T, kWidth>& values) {
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane)
        sum.value[lane] += values.value[lane];
}

/// Adds the rows of dy whose id is `id`, one after the other, to a pack of its row of the
/// table; a row that gets none is not touched.
template <typename T, int kWidth>
struct ByLooking {
    ScatteredRows<T> scattered;
    const std::int32_t* ids;

    __device__ void add(T* pack, std::int64_t id, std::int64_t column) const {
        Pack<T, kWidth> sum;
        bool any = false;
        for (std::int64_t i = 0; i < scattered.elements; ++i) {
            if (ids[i] != id) continue;
            if (!any) sum = load<kWidth>(pack, true);
            add_to(sum, load<kWidth>(scattered.dy + i * scattered.width + column, true));
            any = true;
        }
        if (any) store(pack, sum, true);
    }
};

template <typename T, int kWidth>
struct BySearching {
    static constexpr int kUnderWay = 8;
    ScatteredRows<T> scattered;
    SortedIds sorted;

    __device__ void add(T* pack, std::int64_t id, std::int64_t column) const {
        const std::int64_t begin =
            count_before(sorted.ids, 0, scattered.elements, id, false);
        const std::int64_t end =
            begin + count_before(sorted.ids, begin, scattered.elements, id, true);
        if (begin == end) return;
        Pack<T, kWidth> sum = load<kWidth>(pack, true);
        for (std::int64_t base = begin; base < end; base += kUnderWay) {
            Pack<T, kWidth> values[kUnderWay];
#pragma unroll
            for (int u = 0; u < kUnderWay; ++u) {
                if (base + u >= end) break;
                const std::int64_t i = sorted.positions[base + u];
                values[u] =
                    load<kWidth>(scattered.dy + i * scattered.width + column, true);
            }
#pragma unroll
            for (int u = 0; u < kUnderWay; ++u) {
                if (base + u >= end) break;
                add_to(sum, values[u]);
            }
        }
        store(pack, sum, true);
    }
};

template <typename T, int kWidth, typename Gradients>
__global__ void __launch_bounds__(kTileThreads)
    scatter_rows(ScatteredRows<T> scattered, Gradients gradients, Tiles tiles) {
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        const std::int64_t column = at.column * kWidth;
        gradients.add(scattered.table + row * scattered.width + column,
                      scattered.first + row, column);
    }
}

template <int kWidth, typename T, typename Gradients>
void launch_scatter(cudaStream_t stream, const ScatteredRows<T>& scattered,
                    const Gradients& gradients) {
    const Tiles tiles(scattered.rows, scattered.width / kWidth);
    launch(stream, scatter_rows<T, kWidth, Gradients>, tiles.blocks(), kTileThreads,
           scattered, gradients, tiles);
}

template <typename T>
bool by_full_packs(const ScatteredRows<T>& scattered) {
    return scattered.width % kFullWidth<T> == 0 && aligned(scattered.table, scattered.dy);
}

}  // namespace

template <typename T>
void launch_scatter_few(cudaStream_t stream, const ScatteredRows<T>& scattered,
                        const std::int32_t* ids) {
    constexpr int kFull = kFullWidth<T>;
    if (by_full_packs(scattered))
        launch_scatter<kFull>(stream, scattered, ByLooking<T, kFull>{scattered, ids});
    else
        launch_scatter<1>(stream, scattered, ByLooking<T, 1>{scattered, ids});
}

template <typename T>
void launch_scatter_sorted(cudaStream_t stream, const ScatteredRows<T>& scattered,
                           const SortedIds& ids) {
    constexpr int kFull = kFullWidth<T>;
    if (by_full_packs(scattered))
        launch_scatter<kFull>(stream, scattered, BySearching<T, kFull>{scattered, ids});
    else
        launch_scatter<1>(stream, scattered, BySearching<T, 1>{scattered, ids});
}

template void launch_scatter_few(cudaStream_t, const ScatteredRows<float>&,
                                 const std::int32_t*);
template void launch_scatter_few(cudaStream_t, const ScatteredRows<double>&,
                                 const std::int32_t*);
template void launch_scatter_sorted(cudaStream_t, const ScatteredRows<float>&,
                                    const SortedIds&);
template void launch_scatter_sorted(cudaStream_t, const ScatteredRows<double>&,
                                    const SortedIds&);

}  // namespace lockstep::gpu

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

/// Adds the rows of dy whose id is `id`, in order, to a pack of the id's row of the
/// table. If there are no such rows, the pack is not touched.
template <typename S, int kWidth>
struct ByLooking {
    ScatteredRows scattered;
    const std::int32_t* ids;

    __device__ void add(S* pack, std::int64_t id, std::int64_t column) const {
        Pack<Computed<S>, kWidth> sum;
        bool any = false;
        for (std::int64_t i = 0; i < scattered.elements; ++i) {
            if (ids[i] != id) continue;
            if (!any) sum = load<kWidth>(pack, true);
            add_to(sum, load<kWidth>(scattered.dy.as<S>() + i * scattered.width + column,
                                     true));
            any = true;
        }
        if (any) store(pack, sum, true);
    }
};

template <typename S, int kWidth>
struct BySearching {
    static constexpr int kUnderWay = 8;
    ScatteredRows scattered;
    SortedIds sorted;

    __device__ void add(S* pack, std::int64_t id, std::int64_t column) const {
        const std::int64_t begin =
            count_before(sorted.ids, 0, scattered.elements, id, false);
        const std::int64_t end =
            begin + count_before(sorted.ids, begin, scattered.elements, id, true);
        if (begin == end) return;
        auto sum = load<kWidth>(pack, true);
        for (std::int64_t base = begin; base < end; base += kUnderWay) {
            Pack<Computed<S>, kWidth> values[kUnderWay];
#pragma unroll
            for (int u = 0; u < kUnderWay; ++u) {
                if (base + u >= end) break;
                const std::int64_t i = sorted.positions[base + u];
                values[u] = load<kWidth>(
                    scattered.dy.as<S>() + i * scattered.width + column, true);
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

template <typename S, int kWidth, typename Gradients>
__global__ void __launch_bounds__(kTileThreads)
    scatter_rows(ScatteredRows scattered, Gradients gradients, Tiles tiles) {
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        const std::int64_t column = at.column * kWidth;
        gradients.add(scattered.table.as<S>() + row * scattered.width + column,
                      scattered.first + row, column);
    }
}

/// Launches `Gradients`, which finds in `ids` the rows of dy that belong to a row of the
/// table, and adds them.
template <template <typename, int> typename Gradients, typename Ids>
void launch_rows(cudaStream_t stream, const ScatteredRows& scattered, const Ids& ids) {
    with_type(scattered.table, [&]<typename S>(S) {
        const bool full = scattered.width % kFullWidth<S> == 0 &&
                          aligned(scattered.table, scattered.dy);
        with_width<S>(full, [&]<int kWidth>(Constant<kWidth>) {
            const Tiles tiles(scattered.rows, scattered.width / kWidth);
            launch(stream, scatter_rows<S, kWidth, Gradients<S, kWidth>>, tiles.blocks(),
                   kTileThreads, scattered, Gradients<S, kWidth>{scattered, ids}, tiles);
        });
    });
}

}  // namespace

void launch_scatter_few(cudaStream_t stream, const ScatteredRows& scattered,
                        const std::int32_t* ids) {
    launch_rows<ByLooking>(stream, scattered, ids);
}

void launch_scatter_many(cudaStream_t stream, std::int32_t* workspace,
                         const ScatteredRows& scattered, const std::int32_t* ids) {
    launch_rows<BySearching>(stream, scattered,
                             sorted(stream, workspace, ids, scattered.elements));
}

}  // namespace lockstep::gpu

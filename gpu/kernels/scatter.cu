#include <utility>

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/scatter.hpp"
#include "gpu/kernels/tiles.cuh"

namespace lockstep::gpu {

namespace {

/// Ids in ascending order, and where each stood; equal ids keep their order.
struct SortedIds {
    const std::int32_t* ids;
    const std::int32_t* positions;
};

/// How many of the sorted ids in [begin, end) come before `id`; with `equal_too`, those
/// equal to it as well.
__device__ std::int64_t count_before(const std::int32_t* ids, std::int64_t begin,
                                     std::int64_t end, std::int64_t id, bool equal_too) {
    const std::int64_t from = begin;
    while (begin < end) {
        const std::int64_t middle = begin + (end - begin) / 2;
        if (ids[middle] < id || (equal_too && ids[middle] == id))
            begin = middle + 1;
        else
            end = middle;
    }
    return begin - from;
}

constexpr int kSortThreads = 256;

struct Pairs {
    std::int32_t* ids;
    std::int32_t* positions;
};

__global__ void __launch_bounds__(kSortThreads)
    number_ids(Pairs to, const std::int32_t* ids, std::int64_t elements) {
    const std::int64_t i = std::int64_t{blockIdx.x} * kSortThreads + threadIdx.x;
    if (i >= elements) return;
    to.ids[i] = ids[i];
    to.positions[i] = static_cast<std::int32_t>(i);
}

/// Merges runs of `run` sorted ids, two and two. An id's place is its place in its own
/// run, and behind those of the other run that come before it; of equal ids the left
/// run's come first.
__global__ void __launch_bounds__(kSortThreads)
    merge_runs(Pairs to, Pairs from, std::int64_t elements, std::int64_t run) {
    const std::int64_t i = std::int64_t{blockIdx.x} * kSortThreads + threadIdx.x;
    if (i >= elements) return;
    const std::int64_t begin = i - i % (2 * run);
    const std::int64_t middle = begin + run < elements ? begin + run : elements;
    const std::int64_t end = middle + run < elements ? middle + run : elements;
    const bool left = i < middle;
    const std::int32_t id = from.ids[i];
    const std::int64_t before_in_other =
        left ? count_before(from.ids, middle, end, id, false)
             : count_before(from.ids, begin, middle, id, true);
    const std::int64_t place = (left ? i : i - run) + before_in_other;
    to.ids[place] = id;
    to.positions[place] = from.positions[i];
}

/// Sorts `elements` ids, fewer than 2^31. The result lies in the workspace.
SortedIds sort(cudaStream_t stream, std::int32_t* workspace, const std::int32_t* ids,
               std::int64_t elements) {
    Pairs sorted{workspace, workspace + elements};
    Pairs next{workspace + 2 * elements, workspace + 3 * elements};
    const auto blocks = static_cast<int>(divided_up(elements, kSortThreads));
    launch(stream, number_ids, blocks, kSortThreads, sorted, ids, elements);
    for (std::int64_t run = 1; run < elements; run *= 2) {
        launch(stream, merge_runs, blocks, kSortThreads, next, sorted, elements, run);
        std::swap(sorted, next);
    }
    return {sorted.ids, sorted.positions};
}

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
    ScatteredRows scattered;
    const std::int32_t* ids;

    __device__ void add(T* pack, std::int64_t id, std::int64_t column) const {
        Pack<T, kWidth> sum;
        bool any = false;
        for (std::int64_t i = 0; i < scattered.elements; ++i) {
            if (ids[i] != id) continue;
            if (!any) sum = load<kWidth>(pack, true);
            add_to(sum, load<kWidth>(scattered.dy.as<T>() + i * scattered.width + column,
                                     true));
            any = true;
        }
        if (any) store(pack, sum, true);
    }
};

template <typename T, int kWidth>
struct BySearching {
    static constexpr int kUnderWay = 8;
    ScatteredRows scattered;
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
                values[u] = load<kWidth>(
                    scattered.dy.as<T>() + i * scattered.width + column, true);
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
    scatter_rows(ScatteredRows scattered, Gradients gradients, Tiles tiles) {
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        const std::int64_t column = at.column * kWidth;
        gradients.add(scattered.table.as<T>() + row * scattered.width + column,
                      scattered.first + row, column);
    }
}

/// `Gradients` adds the rows that belong to one of the table's, given what it looks for
/// them in, ids.
template <template <typename, int> typename Gradients, typename Ids>
void launch_rows(cudaStream_t stream, const ScatteredRows& scattered, const Ids& ids) {
    with_type(scattered.table, [&]<typename T>(T) {
        const bool full = scattered.width % kFullWidth<T> == 0 &&
                          aligned(scattered.table, scattered.dy);
        with_width<T>(full, [&]<int kWidth>(Constant<kWidth>) {
            const Tiles tiles(scattered.rows, scattered.width / kWidth);
            launch(stream, scatter_rows<T, kWidth, Gradients<T, kWidth>>, tiles.blocks(),
                   kTileThreads, scattered, Gradients<T, kWidth>{scattered, ids}, tiles);
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
                             sort(stream, workspace, ids, scattered.elements));
}

}  // namespace lockstep::gpu

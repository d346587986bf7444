#include <utility>

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/sort.cuh"

namespace lockstep::gpu {

namespace {

constexpr int kSortThreads = 256;

int blocks_for(std::int64_t threads) {
    return static_cast<int>(divided_up(threads, kSortThreads));
}

__device__ std::int64_t thread_number() {
    return std::int64_t{blockIdx.x} * kSortThreads + threadIdx.x;
}

struct Pairs {
    std::int32_t* ids;
    std::int32_t* positions;
};

__global__ void __launch_bounds__(kSortThreads)
    number_ids(Pairs to, const std::int32_t* ids, std::int64_t elements,
               std::int64_t columns) {
    const std::int64_t i = thread_number();
    if (i >= elements) return;
    const std::int64_t rows = elements / columns;
    const std::int64_t place = i % rows * columns + i / rows;
    to.ids[i] = ids[place];
    to.positions[i] = static_cast<std::int32_t>(place);
}

/// Merges pairs of runs of `run` sorted ids. The new place of an id is its place in its
/// own run plus the number of ids of the other run that come before it. Of equal ids,
/// those of the left run come first.
__global__ void __launch_bounds__(kSortThreads)
    merge_runs(Pairs to, Pairs from, std::int64_t elements, std::int64_t run) {
    const std::int64_t i = thread_number();
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

__global__ void __launch_bounds__(kSortThreads)
    place_sorted(SortResults results, SortedIds sorted, std::int64_t elements) {
    const std::int64_t i = thread_number();
    if (i >= elements) return;
    const std::int32_t position = sorted.positions[i];
    results.order[i] = position;
    results.rows[i] = static_cast<std::int32_t>(position / results.columns);
}

__global__ void __launch_bounds__(kSortThreads)
    count_sorted(SortResults results, SortedIds sorted, std::int64_t elements) {
    const std::int64_t id = thread_number();
    if (id >= results.bound) return;
    const std::int64_t begin = count_before(sorted.ids, 0, elements, id, false);
    results.counts[id] =
        static_cast<std::int32_t>(count_before(sorted.ids, begin, elements, id, true));
}

}  // namespace

SortedIds sorted(cudaStream_t stream, std::int32_t* workspace, const std::int32_t* ids,
                 std::int64_t elements, std::int64_t columns) {
    Pairs sorted{workspace, workspace + elements};
    Pairs next{workspace + 2 * elements, workspace + 3 * elements};
    const int blocks = blocks_for(elements);
    launch(stream, number_ids, blocks, kSortThreads, sorted, ids, elements, columns);
    for (std::int64_t run = 1; run < elements; run *= 2) {
        launch(stream, merge_runs, blocks, kSortThreads, next, sorted, elements, run);
        std::swap(sorted, next);
    }
    return {sorted.ids, sorted.positions};
}

void launch_sort_ids(cudaStream_t stream, const SortResults& results,
                     std::int32_t* workspace, const std::int32_t* ids,
                     std::int64_t elements) {
    const SortedIds in_order = sorted(stream, workspace, ids, elements,
                                      results.by_columns ? results.columns : 1);
    launch(stream, place_sorted, blocks_for(elements), kSortThreads, results, in_order,
           elements);
    launch(stream, count_sorted, blocks_for(results.bound), kSortThreads, results,
           in_order, elements);
}

}  // namespace lockstep::gpu

#include <utility>

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/sort.cuh"
#include "gpu/kernels/sort.hpp"

namespace lockstep::gpu {

namespace {

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

}  // namespace

SortedIds launch_sort(cudaStream_t stream, std::int32_t* workspace,
                      const std::int32_t* ids, std::int64_t elements) {
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

}  // namespace lockstep::gpu

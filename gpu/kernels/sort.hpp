#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// Ids in ascending order, and where each stood; equal ids keep their order.
struct SortedIds {
    const std::int32_t* ids;
    const std::int32_t* positions;
};

/// Elements of workspace that sorting needs.
constexpr std::int64_t sort_workspace(std::int64_t elements) {
    return 4 * elements;
}
/// Sorts ids, fewer than 2^31, which are taken column by column. The result lies in the
/// workspace.
SortedIds sorted(cudaStream_t stream, std::int32_t* workspace, const std::int32_t* ids,
                 std::int64_t elements, std::int64_t columns = 1);

/// A sort of ids (n, columns), which lie in [0, bound), writes its results here.
struct SortResults {
    std::int32_t* order;   ///< where each id stood
    std::int32_t* rows;    ///< the row that it stood in
    std::int32_t* counts;  ///< how many there are of each: bound
    std::int64_t columns;
    std::int64_t bound;
    bool by_columns;
};
void launch_sort_ids(cudaStream_t stream, const SortResults& results,
                     std::int32_t* workspace, const std::int32_t* ids,
                     std::int64_t elements);

}  // namespace lockstep::gpu

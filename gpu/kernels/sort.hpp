#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// Ids in ascending order, with their former positions; equal ids keep their order.
struct SortedIds {
    const std::int32_t* ids;
    const std::int32_t* positions;
};

/// Returns the number of elements of workspace that sorting needs.
constexpr std::int64_t sort_workspace(std::int64_t elements) {
    return 4 * elements;
}
/// Sorts fewer than 2^31 ids, which are read column by column. The result is in the
/// workspace.
SortedIds sorted(cudaStream_t stream, std::int32_t* workspace, const std::int32_t* ids,
                 std::int64_t elements, std::int64_t columns = 1);

/// The results of sorting ids (n, columns) in [0, bound).
struct SortResults {
    std::int32_t* order;   ///< the former position of each id
    std::int32_t* rows;    ///< the row of each id
    std::int32_t* counts;  ///< how often each id occurs; `bound` numbers
    std::int64_t columns;
    std::int64_t bound;
    bool by_columns;
};
void launch_sort_ids(cudaStream_t stream, const SortResults& results,
                     std::int32_t* workspace, const std::int32_t* ids,
                     std::int64_t elements);

}  // namespace lockstep::gpu

#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// Ids in ascending order, and where each stood; equal ids keep their order.
struct SortedIds {
    const std::int32_t* ids;
    const std::int32_t* positions;
};

/// Elements of workspace that the next needs.
constexpr std::int64_t sort_workspace(std::int64_t elements) {
    return 4 * elements;
}
/// Sorts `elements` ids, fewer than 2^31. The result lies in the workspace.
SortedIds launch_sort(cudaStream_t stream, std::int32_t* workspace,
                      const std::int32_t* ids, std::int64_t elements);

}  // namespace lockstep::gpu

#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

/// A table (rows, width) whose row ids[i] - first, where it has that, gets row i of dy
/// (elements, width) added, in order of i.
struct ScatteredRows {
    Numbers table;
    std::int64_t first;
    std::int64_t rows;
    std::int64_t width;
    Numbers dy;
    std::int64_t elements;
};

/// Every row of the table looks at every id: for few of them.
void launch_scatter_few(cudaStream_t stream, const ScatteredRows& scattered,
                        const std::int32_t* ids);

/// Leaves the same bits: it sorts the ids, fewer than 2^31, and a row looks at its own.
/// The workspace is that of sorting (gpu/kernels/sort.hpp).
void launch_scatter_many(cudaStream_t stream, std::int32_t* workspace,
                         const ScatteredRows& scattered, const std::int32_t* ids);

}  // namespace lockstep::gpu

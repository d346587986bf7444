#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

/// A table (rows, width). Row i of dy (elements, width) is added to row ids[i] - first of
/// the table if the table has that row. Rows are added in order of i.
struct ScatteredRows {
    Numbers table;
    std::int64_t first;
    std::int64_t rows;
    std::int64_t width;
    Numbers dy;
    std::int64_t elements;
};

/// For few ids: compares each row of the table with every id.
void launch_scatter_few(cudaStream_t stream, const ScatteredRows& scattered,
                        const std::int32_t* ids);

/// For many ids (fewer than 2^31), with the same bits: sorts the ids, and then searches
/// them for each row of the table. Needs the workspace of sorting (gpu/kernels/sort.hpp).
void launch_scatter_many(cudaStream_t stream, std::int32_t* workspace,
                         const ScatteredRows& scattered, const std::int32_t* ids);

}  // namespace lockstep::gpu

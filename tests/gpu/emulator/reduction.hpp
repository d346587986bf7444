#pragma once

#include <cstddef>
#include <vector>

#include "tests/gpu/emulator/include/nccl.h"

namespace emulated {

/// Returns 0 if `type` is unknown.
std::size_t bytes_of(ncclDataType_t type);
/// Returns whether the emulator can add up such elements. It can move every type.
bool can_reduce(ncclDataType_t type);

/// Reduces the parts of all ranks, element by element, in the order of ranks. As in NCCL,
/// a mean divides floating point numbers before the sum, and integers after the sum.
/// `result` may be one of the parts.
void reduce(ncclDataType_t type, ncclRedOp_t reduction,
            const std::vector<const char*>& parts, char* result, std::size_t count);

}  // namespace emulated

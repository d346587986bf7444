#pragma once

#include <cstddef>
#include <vector>

#include "tests/gpu/emulator/include/nccl.h"

namespace emulated {

/// Returns 0 if it is no type.
std::size_t bytes_of(ncclDataType_t type);
/// Returns whether this emulation can add up such elements; it can move all types.
bool can_reduce(ncclDataType_t type);

/// Reduces all ranks' parts, element by element, in the order of ranks. As in NCCL, a
/// mean divides floating point numbers before the sum and integers after it. `result` may
/// be one of the parts.
void reduce(ncclDataType_t type, ncclRedOp_t reduction,
            const std::vector<const char*>& parts, char* result, std::size_t count);

}  // namespace emulated

#pragma once

#include <cstddef>
#include <vector>

#include "tests/gpu/emulator/include/nccl.h"

namespace emulated {

/// 0 for what is no type.
std::size_t bytes_of(ncclDataType_t type);
/// Whether this emulation can add up such elements; all can be moved.
bool can_reduce(ncclDataType_t type);

/// Element by element over all ranks' parts, in their order. As NCCL does, a mean of
/// floating point divides first and a mean of integers last. `result` may be one of the
/// parts.
void reduce(ncclDataType_t type, ncclRedOp_t reduction,
            const std::vector<const char*>& parts, char* result, std::size_t count);

}  // namespace emulated

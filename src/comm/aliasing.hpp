#pragma once

#include <span>
#include <string>

#include "src/comm/operation.hpp"

namespace lockstep {

/// The memory of the calling rank that an operation reads and writes. A pointer is null
/// if the operation does not read, or does not write.
struct BufferUse {
    const Tensor* read = nullptr;
    const Tensor* written = nullptr;
};

/// Returns the memory that member `rank` of the communicator reads and writes. In a
/// broadcast, for example, only the root reads. Empty tensors count as unused.
BufferUse buffers_of(const CommOperation& operation, int rank);

/// "elements 0 to 63 of the f32 buffer made at program.cpp:12": bytes [begin, end) of a
/// tensor's storage.
std::string buffer_text(const Tensor& tensor, std::int64_t begin, std::int64_t end);

/// Buffers of one communication may share memory only by these in-place rules:
///
/// - all_reduce, broadcast, reduce, all_to_all: input and output are the same;
/// - all_gather, and gather at the root: input is output's own block;
/// - reduce_scatter, and scatter at the root: output is input's own block.
///
/// Any other overlap is refused (FaultError, F20), since the values would differ from
/// backend to backend. `rank` is the rank in the communicator called `name`.
inline void require_apart(const CommOperation& operation, int rank,
                          const std::string& name);

/// Checks operations that start together: if one operation writes a buffer, no other
/// operation may read or write that buffer, since they run at the same time. Costs n log
/// n for n buffers that are not adjacent in memory.
void require_apart(std::span<const CommOperation> operations, int rank,
                   const std::string& name);

/// Checks the in-place rule if input and output are in the same memory.
void require_in_place_rule(const CommOperation& operation, int rank,
                           const std::string& name);

inline void require_apart(const CommOperation& operation, int rank,
                          const std::string& name) {
    if (operation.input && operation.input.storage() == operation.output.storage())
        require_in_place_rule(operation, rank, name);
}

}  // namespace lockstep

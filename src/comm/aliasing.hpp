#pragma once

#include <span>
#include <string>

#include "src/comm/operation.hpp"

namespace lockstep {

/// The memory of the calling rank that an operation reads and writes; null if it does not
/// read, or write.
struct BufferUse {
    const Tensor* read = nullptr;
    const Tensor* written = nullptr;
};

/// Returns it for member `rank` of the communicator: a rank that is not the root of a
/// broadcast does not read its buffer, and so on. Empty tensors are not used.
BufferUse buffers_of(const CommOperation& operation, int rank);

/// "elements 0 to 63 of the f32 buffer made at program.cpp:12": bytes [begin, end) of a
/// tensor's storage.
std::string buffer_text(const Tensor& tensor, std::int64_t begin, std::int64_t end);

/// Buffers of one communication may share memory only as its in-place rule says:
///
/// - all_reduce, broadcast, reduce, all_to_all: input and output are the same;
/// - all_gather, and gather at the root: input is output's own block;
/// - reduce_scatter, and scatter at the root: output is input's own block.
///
/// Anything else that overlaps is refused (FaultError, F20), since each backend would
/// leave other values there. `rank` is that in the communicator called `name`.
inline void require_apart(const CommOperation& operation, int rank,
                          const std::string& name);

/// Checks operations that are started together: what one of them writes, no other
/// may read or write. They run side by side. n log n for n buffers that are not
/// neighbours in memory.
void require_apart(std::span<const CommOperation> operations, int rank,
                   const std::string& name);

/// require_apart's, for an input and an output in the same memory.
void require_in_place_rule(const CommOperation& operation, int rank,
                           const std::string& name);

inline void require_apart(const CommOperation& operation, int rank,
                          const std::string& name) {
    if (operation.input && operation.input.storage() == operation.output.storage())
        require_in_place_rule(operation, rank, name);
}

}  // namespace lockstep

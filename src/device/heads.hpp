#pragma once

#include <cstdint>

#include "src/core/tensor.hpp"

namespace lockstep {

/// Attention's heads: columns [first, first + heads * width) of a tensor (s, batches,
/// columns), seen as batches * heads matrices (s, width). No copy.
struct Heads {
    Tensor tensor;
    std::int64_t heads = 1;
    std::int64_t width = 0;
    std::int64_t first = 0;

    std::int64_t rows() const { return tensor.shape()[0]; }
    std::int64_t batches() const { return tensor.shape()[1]; }
    std::int64_t columns() const { return tensor.shape()[2]; }
    /// Where element (0, 0) of head `head` of batch `batch` lies, in elements.
    std::int64_t offset(std::int64_t batch, std::int64_t head) const {
        return batch * columns() + first + head * width;
    }
    /// From a row of a head to its next, in elements.
    std::int64_t pitch() const { return batches() * columns(); }
};

}  // namespace lockstep

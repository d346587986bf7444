#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "src/core/host_tensor.hpp"

namespace lockstep {

// Tensors compared by their bits: a NaN equals the same NaN, and 0 differs from -0.

/// Returns a hash of the bytes. Different bytes almost never have equal hashes. The
/// function reads several bytes per nanosecond.
std::uint64_t hash_of_bits(const std::byte* data, std::int64_t bytes);

/// Says how two tensors of one shape and dtype differ.
struct BitDifference {
    std::int64_t first = -1;    ///< the first element (row-major) that differs; -1: none
    std::int64_t elements = 0;  ///< how many differ
};
BitDifference difference_in_bits(const HostTensor& a, const HostTensor& b);

/// "[3, 5]": where element `index` is in a tensor of the shape.
std::string element_text(const Shape& shape, std::int64_t index);

/// Returns an element with all of its digits, so that different values have different
/// texts.
std::string value_text(const HostTensor& values, std::int64_t index);

}  // namespace lockstep

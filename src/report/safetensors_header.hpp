#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "src/core/dtype.hpp"
#include "src/core/shape.hpp"

namespace lockstep {

/// The format's own limit on the header's length.
inline constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;

/// One tensor as the header of a safetensors file describes it. Offsets count from the
/// first byte after the header.
struct TensorEntry {
    std::string name;
    DType dtype = DType::f32;
    Shape shape;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
};

/// The header's entries in the order of their data. `file` is named in every complaint.
/// Throws UsageError unless the header is sound and its tensors cover `data_bytes`
/// exactly.
std::vector<TensorEntry> parse_safetensors_header(const std::string& header,
                                                  std::uint64_t data_bytes,
                                                  const std::string& file);

}  // namespace lockstep

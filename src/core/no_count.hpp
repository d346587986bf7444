#pragma once

#include <cstdint>
#include <limits>

namespace lockstep {

/// A run that computes only shapes has no numbers. In such a run downloads return NaN,
/// and i32 downloads return this value.
inline constexpr std::int32_t kNoCount = std::numeric_limits<std::int32_t>::min();

/// Returns the end of a sentence that refuses `size` as a number of rows or elements.
/// This text explains kNoCount if `size` was computed from kNoCount: as a multiple, as a
/// sum with some other counts, or as a quotient by up to 64. For other sizes, returns "".
constexpr const char* hint_of_no_count(std::int64_t size) {
    return size > kNoCount / 64 ? ""
                                : "; a run that computes shapes only has no numbers to "
                                  "download: use route(), or ask Device::has_numbers()";
}

}  // namespace lockstep

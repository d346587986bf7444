#pragma once

#include <cstdint>
#include <limits>

namespace lockstep {

/// A run that computes shapes only has no numbers. There, downloads give NaN, or, for
/// i32, this value.
inline constexpr std::int32_t kNoCount = std::numeric_limits<std::int32_t>::min();

/// Returns the end of a sentence that refuses `size` as a number of rows or elements. It
/// explains kNoCount if `size` was computed from it: as a multiple, as a sum with some
/// other counts, or as a quotient by up to 64. For other sizes it is "".
constexpr const char* hint_of_no_count(std::int64_t size) {
    return size > kNoCount / 64 ? ""
                                : "; a run that computes shapes only has no numbers to "
                                  "download: use route(), or ask Device::has_numbers()";
}

}  // namespace lockstep

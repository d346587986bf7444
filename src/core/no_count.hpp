#pragma once

#include <cstdint>
#include <limits>

namespace lockstep {

/// A run that computes shapes only has no numbers: what a program downloads there is NaN,
/// and, of i32, this.
inline constexpr std::int32_t kNoCount = std::numeric_limits<std::int32_t>::min();

/// Returns how a sentence ends that refuses `size` as a number of rows, elements or the
/// like: it says what kNoCount is if the size is that, a multiple, a sum with some other
/// counts, or what is left of it by a division by up to 64. For other sizes that is "".
constexpr const char* hint_of_no_count(std::int64_t size) {
    return size > kNoCount / 64
               ? ""
               : "; what a program downloads in a run that computes shapes only is no "
                 "number: use route(), or ask Device::has_numbers()";
}

}  // namespace lockstep

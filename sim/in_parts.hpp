#pragma once

#include <cstdint>

#include "src/core/function_ref.hpp"

namespace lockstep::sim {

/// Calls work(first, count) for stretches that make up [0, n). All but the last are
/// multiples of `unit`. Inside a long operation on a worker, idle threads take some of
/// the stretches; elsewhere there is only one stretch. So an element's result must not
/// depend on its stretch.
void in_parts(std::int64_t n, std::int64_t unit,
              FunctionRef<void(std::int64_t first, std::int64_t count)> work);

/// A part of this many elements takes longer than handing it to another thread, which
/// takes some ten microseconds.
inline constexpr std::int64_t kLongPart = 1 << 15;

/// Returns how many rows of `elements` elements make a part that is long enough.
constexpr std::int64_t long_part_of(std::int64_t elements) {
    return kLongPart / (elements > 0 ? elements : 1) + 1;
}

/// Calls work(i) for each i < rows, in parts. Each row has `elements` elements.
template <typename Work>
void each_row(std::int64_t rows, std::int64_t elements, const Work& work) {
    in_parts(rows, long_part_of(elements), [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i)
            work(i);
    });
}

}  // namespace lockstep::sim

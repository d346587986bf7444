#pragma once

#include <cstdint>

#include "src/core/function_ref.hpp"

namespace lockstep::sim {

/// Calls work(first, count) for stretches that make up [0, n), each a multiple of `unit`
/// but the last one. Inside of a long operation that was handed to a worker, threads that
/// have nothing else to do take some of them; elsewhere one stretch is all. So what an
/// element becomes must not depend on the stretch that it is in.
void in_parts(std::int64_t n, std::int64_t unit,
              FunctionRef<void(std::int64_t first, std::int64_t count)> work);

/// Handing a part to another thread takes some ten microseconds; so many elements take
/// longer.
inline constexpr std::int64_t kLongPart = 1 << 15;

/// Returns how many rows make a part that is long enough, if a row has so many elements.
constexpr std::int64_t long_part_of(std::int64_t elements) {
    return kLongPart / (elements > 0 ? elements : 1) + 1;
}

/// Calls work(i) for each i < rows, in parts. A row has so many elements.
template <typename Work>
void each_row(std::int64_t rows, std::int64_t elements, const Work& work) {
    in_parts(rows, long_part_of(elements), [&](std::int64_t first, std::int64_t count) {
        for (std::int64_t i = first; i < first + count; ++i)
            work(i);
    });
}

}  // namespace lockstep::sim

#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "sim/in_parts.hpp"
#include "src/device/heads.hpp"

namespace lockstep::sim {

/// Returns factor times rows [first, first + count) of one head, packed without gaps.
template <typename T>
std::vector<T> packed(const Heads& heads, std::int64_t offset, std::int64_t first,
                      std::int64_t count, T factor = 1) {
    const std::int64_t width = heads.width, pitch = heads.pitch();
    std::vector<T> rows(static_cast<std::size_t>(count * width));
    const T* from = heads.tensor.data<T>() + offset + first * pitch;
    for (T* row = rows.data(); row != rows.data() + count * width; row += width) {
        for (std::int64_t column = 0; column < width; ++column)
            row[column] = factor * from[column];
        from += pitch;
    }
    return rows;
}

/// Returns all rows of one head, packed.
template <typename T>
std::vector<T> packed(const Heads& heads, std::int64_t offset) {
    return packed<T>(heads, offset, 0, heads.rows());
}

/// Puts packed rows back into one head's rows, from row `first` on.
template <typename T>
void unpack(const Heads& heads, std::int64_t offset, const std::vector<T>& rows,
            std::int64_t first) {
    const std::int64_t width = heads.width, pitch = heads.pitch();
    T* into = heads.tensor.data<T>() + offset + first * pitch;
    for (auto row = rows.begin(); row != rows.end(); row += width) {
        std::copy_n(row, width, into);
        into += pitch;
    }
}

/// Adds factor times packed rows to one head's rows, from row `first` on.
template <typename T>
void add_packed(const Heads& heads, std::int64_t offset, const std::vector<T>& rows,
                T factor = 1, std::int64_t first = 0) {
    const std::int64_t width = heads.width, pitch = heads.pitch();
    T* into = heads.tensor.data<T>() + offset + first * pitch;
    for (auto row = rows.begin(); row != rows.end(); row += width) {
        for (std::int64_t column = 0; column < width; ++column)
            into[column] += factor * row[column];
        into += pitch;
    }
}

/// Calls f(index, batch, head) for every head. `index` counts the heads of all batches.
template <typename F>
void each_head(const Heads& heads, F&& f) {
    for (std::int64_t batch = 0; batch < heads.batches(); ++batch)
        for (std::int64_t head = 0; head < heads.heads; ++head)
            f(batch * heads.heads + head, batch, head);
}

/// Calls f(index, batch, head) for every head, in parts (in_parts.hpp) whose sizes are
/// multiples of `unit` heads. `make` makes a new f for each part. Heads of different
/// parts must not write to the same memory.
template <typename Make>
void each_head_in_parts(const Heads& heads, std::int64_t unit, const Make& make) {
    in_parts(heads.batches() * heads.heads, unit,
             [&](std::int64_t first, std::int64_t count) {
                 auto f = make();
                 for (std::int64_t index = first; index < first + count; ++index)
                     f(index, index / heads.heads, index % heads.heads);
             });
}

}  // namespace lockstep::sim

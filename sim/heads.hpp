#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/device/heads.hpp"

namespace lockstep::sim {

/// Rows [first, first + count) of one head, side by side in memory.
template <typename T>
std::vector<T> packed(const Heads& heads, std::int64_t offset, std::int64_t first,
                      std::int64_t count) {
    std::vector<T> rows(static_cast<std::size_t>(count * heads.width));
    const T* from = heads.tensor.data<T>() + offset + first * heads.pitch();
    for (std::int64_t row = 0; row < count; ++row)
        std::copy_n(from + row * heads.pitch(), heads.width,
                    rows.data() + row * heads.width);
    return rows;
}

/// All rows.
template <typename T>
std::vector<T> packed(const Heads& heads, std::int64_t offset) {
    return packed<T>(heads, offset, 0, heads.rows());
}

/// Adds factor times packed rows to one head's rows, from row `first` on.
template <typename T>
void add_packed(const Heads& heads, std::int64_t offset, const std::vector<T>& rows,
                T factor = 1, std::int64_t first = 0) {
    T* into = heads.tensor.data<T>() + offset + first * heads.pitch();
    const auto count = static_cast<std::int64_t>(rows.size()) / heads.width;
    for (std::int64_t row = 0; row < count; ++row)
        for (std::int64_t column = 0; column < heads.width; ++column)
            into[row * heads.pitch() + column] +=
                factor * rows[static_cast<std::size_t>(row * heads.width + column)];
}

/// f(index, batch, head) for every head, counted through.
template <typename F>
void each_head(const Heads& heads, F&& f) {
    for (std::int64_t batch = 0; batch < heads.batches(); ++batch)
        for (std::int64_t head = 0; head < heads.heads; ++head)
            f(batch * heads.heads + head, batch, head);
}

}  // namespace lockstep::sim

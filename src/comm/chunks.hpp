#pragma once

#include <cstdint>

namespace lockstep {

/// A run of elements.
struct Chunk {
    std::int64_t begin = 0;
    std::int64_t count = 0;
};

/// Part `index` of `count` elements dealt out to `parts` in order, as evenly as it goes:
/// sizes differ by one at most. The one rule by which rings cut buffers and batches are
/// sharded.
constexpr Chunk chunk(std::int64_t count, int parts, int index) {
    const std::int64_t begin = count * index / parts;
    return {begin, count * (index + 1) / parts - begin};
}

}  // namespace lockstep

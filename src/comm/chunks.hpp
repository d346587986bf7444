#pragma once

#include <cstdint>

namespace lockstep {

/// A run of elements.
struct Chunk {
    std::int64_t begin = 0;
    std::int64_t count = 0;
};

/// Cuts `count` elements, in order, into `parts` chunks whose sizes differ by at most
/// one, and returns chunk `index`. Rings cut buffers by this rule, and batches are
/// sharded by it.
constexpr Chunk chunk(std::int64_t count, int parts, int index) {
    const std::int64_t begin = count * index / parts;
    return {begin, count * (index + 1) / parts - begin};
}

}  // namespace lockstep

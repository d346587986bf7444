#pragma once

#include "gpu/kernels/sort.hpp"

namespace lockstep::gpu {

/// Returns how many of the sorted ids in [begin, end) are less than `id`; with
/// `equal_too`, less than or equal to it.
inline __device__ std::int64_t count_before(const std::int32_t* ids, std::int64_t begin,
                                            std::int64_t end, std::int64_t id,
                                            bool equal_too) {
    const std::int64_t from = begin;
    while (begin < end) {
        const std::int64_t middle = begin + (end - begin) / 2;
        if (ids[middle] < id || (equal_too && ids[middle] == id))
            begin = middle + 1;
        else
            end = middle;
    }
    return begin - from;
}

}  // namespace lockstep::gpu

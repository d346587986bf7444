#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"
#include "src/device/options.hpp"

namespace lockstep::gpu {

template <typename S>
void launch_fill(cudaStream_t stream, S* destination, std::int64_t elements,
                 Computed<S> value);

/// destination = source, rounded.
template <typename To, typename From>
void launch_cast(cudaStream_t stream, To* destination, const From* source,
                 std::int64_t elements);

/// destination += factor * source.
template <typename S>
void launch_add(cudaStream_t stream, S* destination, const S* source,
                std::int64_t elements, Computed<S> factor);

/// destination *= factor.
template <typename S>
void launch_scale(cudaStream_t stream, S* destination, std::int64_t elements,
                  Computed<S> factor);
/// Multiplies integers by a fraction and truncates the results, as NCCL's mean does.
void launch_scale_whole(cudaStream_t stream, std::int32_t* destination,
                        std::int64_t elements, double factor);

/// destination *= factor[0].
void launch_scale_by_tensor(cudaStream_t stream, Numbers destination, Numbers factor,
                            std::int64_t elements);

/// destination = reduction of (destination, source); integers wrap around. For a mean,
/// this is the sum; the caller divides it once, at the end.
template <typename T>
void launch_combine(cudaStream_t stream, T* destination, const T* source,
                    std::int64_t elements, Reduction reduction);

/// Rows of memory, `pitch` bytes apart.
struct RowsOf {
    const void* data;
    std::int64_t pitch;
};

/// The rows of the source to copy: all rows in order or, if there are ids, row ids[i] -
/// first for each i. The source has `rows` rows; a row that it does not have is copied as
/// zeros.
struct CopiedIds {
    const std::int32_t* ids = nullptr;
    std::int64_t first = 0;
    std::int64_t rows = 0;
};

/// Copies `width` bytes of each of `rows` rows. `element` divides all sizes and
/// addresses.
void launch_copy_rows(cudaStream_t stream, void* destination,
                      std::int64_t destination_pitch, const RowsOf& source,
                      const CopiedIds& ids, std::int64_t rows, std::int64_t width,
                      std::int64_t element);

}  // namespace lockstep::gpu

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "gpu/stream.hpp"
#include "src/core/function_ref.hpp"

namespace lockstep::gpu {

struct FreePinned {
    void operator()(void* memory) const noexcept;
};
/// Pinned host memory, which the GPU reads and writes directly.
template <typename T>
using Pinned = std::unique_ptr<T, FreePinned>;

/// Allocates pinned memory. To allocate or free it, CUDA may wait for all work of the
/// GPU. Throws GpuError if there is no more memory.
void* allocate_pinned(std::size_t bytes);

/// Sends values to the GPU, page by page through pinned memory. From unpinned memory,
/// CUDA may read the values at any time: on some systems after the call has returned.
class Uploads {
  public:
    Uploads();

    /// Puts a copy of the values into the stream; the caller may change them once this
    /// returns. While no page is free, calls `while_waiting` again and again, which may
    /// throw to end the wait.
    void put(std::byte* destination, const std::byte* values, std::int64_t bytes,
             Stream& stream, FunctionRef<void()> while_waiting);

  private:
    static constexpr std::size_t kPages = 4;
    static constexpr std::int64_t kPageBytes = std::int64_t{64} << 10;

    Pinned<std::byte> pages_;
    std::array<Event, kPages> copied_;  ///< by page
    std::size_t next_ = 0;
};

}  // namespace lockstep::gpu

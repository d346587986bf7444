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
/// Memory of the host that the GPU reads and writes by itself.
template <typename T>
using Pinned = std::unique_ptr<T, FreePinned>;

/// Makes some; CUDA may wait for all that the GPU does to make or free it. Throws
/// GpuError if there is no more.
void* allocate_pinned(std::size_t bytes);

/// The way of values to the GPU, page by page through memory that the GPU reads. From
/// other memory CUDA may take values when it likes: on some systems after the call.
class Uploads {
  public:
    Uploads();

    /// Puts a copy of the values into the stream; they may change once it returns.
    /// While all pages are on their way it asks `while_waiting` again and again, which
    /// may throw to end the wait.
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

#include "gpu/uploads.hpp"

#include <algorithm>
#include <cstring>

#include "gpu/check.hpp"

namespace lockstep::gpu {

void FreePinned::operator()(void* memory) const noexcept {
    cudaFreeHost(memory);
}

void* allocate_pinned(std::size_t bytes) {
    void* memory = nullptr;
    GPU_CHECK(cudaMallocHost(&memory, bytes));
    return memory;
}

Uploads::Uploads()
    : pages_(static_cast<std::byte*>(allocate_pinned(kPages * kPageBytes))) {}

void Uploads::put(std::byte* destination, const std::byte* values, std::int64_t bytes,
                  Stream& stream, FunctionRef<void()> while_waiting) {
    for (std::int64_t begin = 0; begin < bytes; begin += kPageBytes) {
        // Wait until the page is free.
        const Event& copied = copied_[next_];
        for (Pause pause; !copied.done(); pause())
            while_waiting();

        // Fill the page with some of the values, and send it.
        const auto part = static_cast<std::size_t>(std::min(bytes - begin, kPageBytes));
        std::byte* const page = pages_.get() + next_ * kPageBytes;
        std::memcpy(page, values + begin, part);
        GPU_CHECK(cudaMemcpyAsync(destination + begin, page, part, cudaMemcpyHostToDevice,
                                  stream.get()));
        stream.record(copied);
        next_ = (next_ + 1) % kPages;
    }
}

}  // namespace lockstep::gpu

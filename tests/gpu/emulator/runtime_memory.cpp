#include <cstring>
#include <vector>

#include "tests/gpu/emulator/include/cuda_runtime.h"
#include "tests/gpu/emulator/memory.hpp"
#include "tests/gpu/emulator/runtime.hpp"
#include "tests/gpu/emulator/settings.hpp"
#include "tests/gpu/emulator/stream.hpp"

using namespace emulated;

namespace {

cudaError_t allocate_into(void** pointer, MemoryKind kind, size_t bytes) {
    if (pointer == nullptr) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    *pointer = allocate(kind, current_device(), bytes);
    return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t free_now(void* pointer, MemoryKind kind) {
    if (pointer == nullptr) return cudaSuccess;
    const std::optional<Allocation> found = find_memory(pointer);
    const std::uint64_t lifetime = found ? begin_free(pointer, kind) : 0;
    if (lifetime == 0) return cudaErrorInvalidValue;
    wait_for_device(found->device);
    finish_free(pointer, lifetime);
    return fault_of(found->device);
}

struct Side {
    const void* data;
    size_t bytes;
    bool on_device;
};

/// Returns CUDA's error for one side of a copy. It cannot check the program's own memory.
cudaError_t check_side(const Side& side) {
    const std::optional<Allocation> found = find_memory(side.data);
    if (side.on_device && (!found || found->kind != MemoryKind::device))
        return cudaErrorInvalidValue;
    if (!found) return side.data == nullptr ? cudaErrorInvalidValue : cudaSuccess;
    if (!side.on_device && found->kind == MemoryKind::device)
        return cudaErrorInvalidValue;
    const auto before =
        static_cast<size_t>(static_cast<const char*>(side.data) - found->data);
    return before + side.bytes <= found->bytes ? cudaSuccess : cudaErrorInvalidValue;
}

bool on_device(const void* pointer) {
    const std::optional<Allocation> found = find_memory(pointer);
    return found && found->kind == MemoryKind::device;
}

struct Copy {
    char* to;
    size_t to_pitch;
    const char* from;
    size_t from_pitch;
    size_t width, height;

    size_t span(size_t pitch) const { return (height - 1) * pitch + width; }
    void run() const {
        for (size_t row = 0; row < height; ++row)
            std::memmove(to + row * to_pitch, from + row * from_pitch, width);
    }
};

/// Keeps the promises of cudaMemcpyAsync. Pageable memory is written before the call
/// returns. CUDA may read pageable memory before the call returns, or later in the
/// stream's order like page-locked memory. The emulator reads it later.
cudaError_t start(Copy copy, cudaMemcpyKind kind, cudaStream_t handle) {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (copy.width == 0 || copy.height == 0) return cudaSuccess;
    if (copy.to_pitch < copy.width || copy.from_pitch < copy.width)
        return cudaErrorInvalidValue;
    const bool to_device =
        kind == cudaMemcpyDefault
            ? on_device(copy.to)
            : kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
    const bool from_device =
        kind == cudaMemcpyDefault
            ? on_device(copy.from)
            : kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
    for (const Side& side : {Side{copy.to, copy.span(copy.to_pitch), to_device},
                             Side{copy.from, copy.span(copy.from_pitch), from_device}})
        if (const cudaError_t wrong = check_side(side)) return wrong;
    put_work(stream, [copy] { copy.run(); });
    if (to_device || find_memory(copy.to)) return cudaSuccess;
    stream->wait();
    return fault_of(stream->device());
}

Copy in_one_row(void* to, const void* from, size_t bytes) {
    return {
        static_cast<char*>(to), bytes, static_cast<const char*>(from), bytes, bytes, 1};
}

cudaError_t start_set(void* pointer, int value, size_t bytes, cudaStream_t handle) {
    const std::shared_ptr<Stream> stream = find_stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    if (const cudaError_t wrong = check_side({pointer, bytes, true})) return wrong;
    put_work(stream, [pointer, value, bytes] { std::memset(pointer, value, bytes); });
    return cudaSuccess;
}

/// The handle of a pool is the number of its device plus one.
bool is_pool(cudaMemPool_t pool) {
    const auto number = reinterpret_cast<uintptr_t>(pool);
    return number >= 1 && number <= static_cast<uintptr_t>(settings().gpus);
}

}  // namespace

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
    return answer([&] {
        *total_bytes = static_cast<size_t>(settings().gpu_bytes);
        *free_bytes = *total_bytes - bytes_in_use(current_device());
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    return answer([&] {
        if (device < 0 || device >= settings().gpus) return cudaErrorInvalidDevice;
        // NOLINTNEXTLINE(performance-no-int-to-ptr): nothing stands behind it.
        *pool = reinterpret_cast<cudaMemPool_t>(static_cast<uintptr_t>(device) + 1);
        return cudaSuccess;
    });
}

cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                    void* value) {
    return answer([&] {
        const bool settable = attribute <= cudaMemPoolAttrReleaseThreshold;
        return is_pool(pool) && settable && value != nullptr ? cudaSuccess
                                                             : cudaErrorInvalidValue;
    });
}

cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                    void* value) {
    return answer([&] {
        if (!is_pool(pool) || attribute < cudaMemPoolAttrReservedMemCurrent)
            return cudaErrorInvalidValue;
        *static_cast<uint64_t*>(value) =
            bytes_in_use(static_cast<int>(reinterpret_cast<uintptr_t>(pool)) - 1);
        return cudaSuccess;
    });
}

cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
    return answer([&] { return is_pool(pool) ? cudaSuccess : cudaErrorInvalidValue; });
}

cudaError_t cudaMalloc(void** pointer, size_t bytes) {
    return answer([&] {
        const cudaError_t result = allocate_into(pointer, MemoryKind::device, bytes);
        if (result == cudaSuccess && bytes > 0) make_nan(*pointer, bytes);
        return result;
    });
}

cudaError_t cudaFree(void* pointer) {
    return answer([&] { return free_now(pointer, MemoryKind::device); });
}

cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream) {
    return answer([&] {
        const std::shared_ptr<Stream> found = find_stream(stream);
        if (!found) return cudaErrorInvalidResourceHandle;
        if (pointer == nullptr) return cudaErrorInvalidValue;
        void* const again = bytes == 0 ? nullptr : allocate_again(*found, bytes);
        *pointer = again;
        const cudaError_t result = again == nullptr
                                       ? allocate_into(pointer, MemoryKind::device, bytes)
                                       : cudaSuccess;
        if (result == cudaSuccess && bytes > 0)
            put(found, [data = *pointer, bytes] { make_nan(data, bytes); });
        return result;
    });
}

cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream) {
    return answer([&] {
        const std::shared_ptr<Stream> found = find_stream(stream);
        if (!found) return cudaErrorInvalidResourceHandle;
        if (pointer == nullptr) return cudaSuccess;
        const std::uint64_t lifetime = begin_free(pointer, MemoryKind::device);
        if (lifetime == 0) return cudaErrorInvalidValue;
        put(found, [pointer, lifetime] { finish_free(pointer, lifetime); });
        offer_again(pointer, lifetime, mark(found));
        return cudaSuccess;
    });
}

cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned) {
    return answer([&] { return allocate_into(pointer, MemoryKind::pinned, bytes); });
}

cudaError_t cudaMallocHost(void** pointer, size_t bytes) {
    return cudaHostAlloc(pointer, bytes, cudaHostAllocDefault);
}

cudaError_t cudaFreeHost(void* pointer) {
    return answer([&] { return free_now(pointer, MemoryKind::pinned); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
    return answer([&] { return start(in_one_row(to, from, bytes), kind, stream); });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    return answer([&] {
        const cudaError_t result = start(in_one_row(to, from, bytes), kind, nullptr);
        if (result != cudaSuccess) return result;
        find_stream(nullptr)->wait();
        return fault_of(current_device());
    });
}

// NOLINTNEXTLINE(readability-function-size): CUDA's parameters.
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                              size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream) {
    return answer([&] {
        const Copy copy{static_cast<char*>(to),
                        to_pitch,
                        static_cast<const char*>(from),
                        from_pitch,
                        width,
                        height};
        return start(copy, kind, stream);
    });
}

cudaError_t cudaMemset(void* pointer, int value, size_t bytes) {
    return answer([&] { return start_set(pointer, value, bytes, nullptr); });
}

cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes, cudaStream_t stream) {
    return answer([&] { return start_set(pointer, value, bytes, stream); });
}

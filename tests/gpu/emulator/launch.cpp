#include <mutex>
#include <unordered_map>

#include "tests/gpu/emulator/block.hpp"
#include "tests/gpu/emulator/fault.hpp"
#include "tests/gpu/emulator/include/cuda_runtime.h"
#include "tests/gpu/emulator/runtime.hpp"
#include "tests/gpu/emulator/stream.hpp"

namespace emulated {

namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxBlocksYZ = 65535;

// The memory that a block's threads can share, by default and at most. Some GPUs have
// more than 99 KB. No GPU since Ampere has less.
constexpr std::size_t kUsualMemory = 48 << 10;
constexpr std::size_t kMostMemory = 99 << 10;
std::mutex allowed_mutex;
std::unordered_map<const void*, std::size_t> allowed_bytes;

/// Returns the runner of this stream's thread. It lives until the thread ends.
BlockRunner& runner() {
    thread_local BlockRunner runner;
    return runner;
}

bool possible(dim3 grid, dim3 block) {
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    return grid.x > 0 && grid.x <= 0x7fffffff && grid.y > 0 && grid.y <= kMaxBlocksYZ &&
           grid.z > 0 && grid.z <= kMaxBlocksYZ && threads > 0 &&
           threads <= kMaxThreads && block.z <= 64;
}

}  // namespace

std::size_t memory_allowed(const void* kernel) {
    const std::lock_guard lock(allowed_mutex);
    const auto found = allowed_bytes.find(kernel);
    return found == allowed_bytes.end() ? kUsualMemory : found->second;
}

bool allow_memory(const void* kernel, int bytes) {
    if (bytes < 0 || static_cast<std::size_t>(bytes) > kMostMemory) return false;
    const std::lock_guard lock(allowed_mutex);
    allowed_bytes[kernel] = static_cast<std::size_t>(bytes);
    return true;
}

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread) {
    return answer([&] {
        const std::shared_ptr<Stream> stream = find_stream(config.stream);
        if (!stream) return cudaErrorInvalidResourceHandle;
        if (stream->device() != current_device()) return cudaErrorInvalidResourceHandle;
        if (!has_kernels()) return cudaErrorNoKernelImageForDevice;
        if (!possible(config.gridDim, config.blockDim))
            return cudaErrorInvalidConfiguration;
        if (config.numAttrs != 0) return cudaErrorNotSupported;
        if (config.dynamicSmemBytes > memory_allowed(kernel))
            return cudaErrorInvalidValue;
        put_launch(
            stream,
            [launch = Launch{config.gridDim, config.blockDim, std::move(thread), kernel,
                             config.dynamicSmemBytes}] { runner().run(launch); });
        return cudaSuccess;
    });
}

void block_barrier(Place place) {
    runner().block_barrier(place);
}

std::uint64_t warp_exchange(WarpCall call, unsigned mask, std::uint64_t value, int source,
                            Place place) {
    return runner().warp_exchange(call, mask, value, source, place);
}

void do_together(WarpAction action, void* mine, Place place) {
    runner().do_together(action, mine, place);
}

void* memory_of_block() {
    return runner().memory();
}

void require_in_memory_of_block(const void* address, std::size_t bytes) {
    runner().require_in_memory(address, bytes);
}

void start_copy(void* to, const void* from, bool is_there) {
    runner().start_copy(to, from, is_there);
}

void end_group_of_copies() {
    runner().end_group_of_copies();
}

void wait_for_all_but_last_group() {
    runner().finish_copies();
}

int lane() {
    return runner().lane();
}

void require_vector_at(const void* address, std::size_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0)
        runner().die_in_kernel("an instruction moves " + std::to_string(bytes) +
                               " bytes at an address that is not a multiple of " +
                               std::to_string(bytes));
}

}  // namespace emulated

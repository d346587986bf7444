#include "tests/gpu/emulator/block.hpp"
#include "tests/gpu/emulator/include/cuda_runtime.h"
#include "tests/gpu/emulator/runtime.hpp"
#include "tests/gpu/emulator/stream.hpp"

namespace emulated {

namespace {

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kMaxBlocksYZ = 65535;

/// Of the stream whose thread this is; it goes with the thread.
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

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread) {
    return answer([&] {
        const std::shared_ptr<Stream> stream = find_stream(config.stream);
        if (!stream) return cudaErrorInvalidResourceHandle;
        if (stream->device() != current_device()) return cudaErrorInvalidResourceHandle;
        if (!has_kernels()) return cudaErrorNoKernelImageForDevice;
        if (!possible(config.gridDim, config.blockDim))
            return cudaErrorInvalidConfiguration;
        if (config.dynamicSmemBytes != 0 || config.numAttrs != 0)
            return cudaErrorNotSupported;
        put(stream, [launch = Launch{config.gridDim, config.blockDim, std::move(thread),
                                     kernel}] { runner().run(launch); });
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

int lane() {
    return runner().lane();
}

void require_vector_at(const void* address, std::size_t bytes) {
    if (reinterpret_cast<std::uintptr_t>(address) % bytes != 0)
        runner().die_in_kernel("an instruction moves " + std::to_string(bytes) +
                               " bytes at an address that is no multiple of them");
}

}  // namespace emulated

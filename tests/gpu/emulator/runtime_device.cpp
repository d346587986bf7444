#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <unistd.h>

#include "tests/gpu/emulator/include/cuda_runtime.h"
#include "tests/gpu/emulator/memory.hpp"
#include "tests/gpu/emulator/runtime.hpp"
#include "tests/gpu/emulator/settings.hpp"
#include "tests/gpu/emulator/stream.hpp"

namespace emulated {

namespace {

thread_local int device_of_thread = 0;
thread_local cudaError_t last_error = cudaSuccess;

bool exists(int device) {
    return device >= 0 && device < settings().gpus;
}

cudaDeviceProp properties_of(int device) {
    cudaDeviceProp properties{};
    std::strcpy(properties.name, "Emulated GPU");
    properties.uuid.bytes[0] = static_cast<char>(device);
    properties.totalGlobalMem = static_cast<size_t>(settings().gpu_bytes);
    properties.sharedMemPerBlock = size_t{48} * 1024;
    properties.regsPerBlock = 65536;
    properties.warpSize = 32;
    properties.maxThreadsPerBlock = 1024;
    for (int& threads : properties.maxThreadsDim)
        threads = 1024;
    for (int& blocks : properties.maxGridSize)
        blocks = 65535;
    properties.major = settings().capability / 10;
    properties.minor = settings().capability % 10;
    properties.multiProcessorCount = 2;
    properties.maxThreadsPerMultiProcessor = 2048;
    properties.unifiedAddressing = 1;
    properties.memoryBusWidth = 64;
    properties.l2CacheSize = 1 << 20;
    properties.pciBusID = device + 1;
    return properties;
}

}  // namespace

int current_device() {
    return device_of_thread;
}

cudaError_t begin() {
    static std::atomic<pid_t> user = 0;
    pid_t nobody = 0;
    if (settings().driver_version / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    if (settings().gpus == 0) return cudaErrorNoDevice;
    if (!user.compare_exchange_strong(nobody, getpid()) && nobody != getpid())
        return cudaErrorInitializationError;
    return cudaSuccess;
}

bool has_kernels() {
    return __CUDA_ARCH_LIST__ / 10 <= settings().capability;
}

cudaError_t remember(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}

}  // namespace emulated

using namespace emulated;

cudaError_t cudaGetLastError() {
    const cudaError_t last = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return last;
}

cudaError_t cudaPeekAtLastError() {
    const cudaError_t fault = fault_of(device_of_thread);
    return fault == cudaSuccess ? last_error : fault;
}

cudaError_t cudaDriverGetVersion(int* version) {
    *version = settings().gpus == 0 ? 0 : settings().driver_version;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
    *count = 0;
    return tell([&] {
        *count = settings().gpus;
        return cudaSuccess;
    });
}

cudaError_t cudaSetDevice(int device) {
    return tell([&] {
        if (!exists(device)) return cudaErrorInvalidDevice;
        device_of_thread = device;
        return cudaSuccess;
    });
}

cudaError_t cudaGetDevice(int* device) {
    return tell([&] {
        *device = device_of_thread;
        return cudaSuccess;
    });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
    return tell([&] {
        if (!exists(device)) return cudaErrorInvalidDevice;
        *properties = properties_of(device);
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
    return tell([&] {
        if (!exists(device)) return cudaErrorInvalidDevice;
        const cudaDeviceProp properties = properties_of(device);
        switch (attribute) {
            case cudaDevAttrMaxThreadsPerBlock:
                *value = properties.maxThreadsPerBlock;
                return cudaSuccess;
            case cudaDevAttrMaxSharedMemoryPerBlock:
                *value = static_cast<int>(properties.sharedMemPerBlock);
                return cudaSuccess;
            case cudaDevAttrWarpSize:
                *value = properties.warpSize;
                return cudaSuccess;
            case cudaDevAttrMultiProcessorCount:
                *value = properties.multiProcessorCount;
                return cudaSuccess;
            case cudaDevAttrMaxThreadsPerMultiProcessor:
                *value = properties.maxThreadsPerMultiProcessor;
                return cudaSuccess;
            case cudaDevAttrComputeCapabilityMajor:
                *value = properties.major;
                return cudaSuccess;
            case cudaDevAttrComputeCapabilityMinor:
                *value = properties.minor;
                return cudaSuccess;
            case cudaDevAttrPciBusId:
                *value = properties.pciBusID;
                return cudaSuccess;
            case cudaDevAttrPciDeviceId:
            case cudaDevAttrPciDomainId:
                *value = 0;
                return cudaSuccess;
            case cudaDevAttrGlobalMemoryBusWidth:
                *value = properties.memoryBusWidth;
                return cudaSuccess;
            case cudaDevAttrL2CacheSize:
                *value = properties.l2CacheSize;
                return cudaSuccess;
            case cudaDevAttrClockRate:
            case cudaDevAttrMemoryClockRate:
                *value = 1000000;
                return cudaSuccess;
            case cudaDevAttrMemoryPoolsSupported:
                *value = settings().memory_pools;
                return cudaSuccess;
        }
        return cudaErrorInvalidValue;
    });
}

cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device) {
    return tell([&] {
        if (!exists(device)) return cudaErrorInvalidDevice;
        std::snprintf(text, static_cast<size_t>(length), "0000:%02x:00.0", device + 1);
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
    return tell([&] {
        if (!exists(device) || !exists(peer)) return cudaErrorInvalidDevice;
        *can = device != peer;
        return cudaSuccess;
    });
}

cudaError_t cudaDeviceSynchronize() {
    return answer([] {
        wait_for_device(device_of_thread);
        return fault_of(device_of_thread);
    });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    return answer([&] {
        *least = 0;
        *greatest = -5;
        return cudaSuccess;
    });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
    return answer([&] {
        if (kernel == nullptr) return cudaErrorInvalidValue;
        if (!has_kernels()) return cudaErrorNoKernelImageForDevice;
        attributes->maxThreadsPerBlock = 1024;
        attributes->ptxVersion = settings().kernels_for;
        return cudaSuccess;
    });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute,
                                 int value) {
    return answer([&] {
        if (kernel == nullptr) return cudaErrorInvalidValue;
        const bool is_memory = attribute == cudaFuncAttributeMaxDynamicSharedMemorySize;
        return !is_memory || allow_memory(kernel, value) ? cudaSuccess
                                                         : cudaErrorInvalidValue;
    });
}

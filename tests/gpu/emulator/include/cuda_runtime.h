// The part of the CUDA runtime that gpu/ uses, emulated on the CPU for tests.
//
// This is a test double, not a GPU. It checks results, orders and misuse. It does not
// check speed or most faults of hardware. It does not find races that show only if a
// thread pauses elsewhere than at a barrier or at an exchange in its warp.
//
// - A stream is a thread with a queue. Operations really race unless an event orders
//   them; short delays sometimes change their order. An event is a point of a stream.
// - The threads of a block are fibers on the stream's thread. Their order changes at
//   every barrier, and blocks run in a random order, so a missing barrier gives wrong
//   numbers. If a block cannot continue, the process ends and says why.
// - Device memory begins as NaN, becomes NaN again when freed, and has red zones. A
//   write outside an allocation, or into freed memory, ends the process.
// - Handles of destroyed objects and pointers to nothing are always errors.
//
// Environment: EMULATED_GPUS is the number of devices (4; 0: no GPU), EMULATED_GPU_BYTES
// is the memory of each (2 GiB), EMULATED_GPU_SEED is the seed of orders and delays (1).
// EMULATED_GPU_DELAYS=0 turns delays off, EMULATED_MEMORY_POOLS=0 turns memory pools off.
// EMULATED_DRIVER_VERSION (13000) and EMULATED_NCCL_VERSION (22809) may be old versions.
// EMULATED_CAPABILITY is the GPUs' compute capability (80; kernels exist from 80 on), and
// EMULATED_KERNELS_FOR is the capability that kernels claim (80). README.md has the rest.
#pragma once

#include <cstddef>
#include <tuple>
#include <utility>

#include "emulated_kernel.h"
#include "emulated_matrix.h"
#include "emulated_types.h"

extern "C" {

const char* cudaGetErrorName(cudaError_t error);
const char* cudaGetErrorString(cudaError_t error);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();

cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaDeviceGetPCIBusId(char* text, int length, int device);
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes);

cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device);
cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                    void* value);
cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr attribute,
                                    void* value);
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t bytes_to_keep);

cudaError_t cudaMalloc(void** pointer, size_t bytes);
cudaError_t cudaFree(void* pointer);
cudaError_t cudaMallocAsync(void** pointer, size_t bytes, cudaStream_t stream);
cudaError_t cudaFreeAsync(void* pointer, cudaStream_t stream);
cudaError_t cudaMallocHost(void** pointer, size_t bytes);
cudaError_t cudaHostAlloc(void** pointer, size_t bytes, unsigned flags);
cudaError_t cudaFreeHost(void* pointer);
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream = nullptr);
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from,
                              size_t from_pitch, size_t width, size_t height,
                              cudaMemcpyKind kind, cudaStream_t stream = nullptr);
cudaError_t cudaMemset(void* pointer, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* pointer, int value, size_t bytes,
                            cudaStream_t stream = nullptr);

cudaError_t cudaStreamCreate(cudaStream_t* stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags,
                                         int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event,
                                unsigned flags = 0);
cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void* data);

cudaError_t cudaEventCreate(cudaEvent_t* event);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream = nullptr);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventSynchronize(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end);

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute,
                                 int value);
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel);
cudaError_t cudaFuncGetName(const char** name, const void* kernel);

}  // extern "C"

template <typename T>
cudaError_t cudaMalloc(T** pointer, size_t bytes) {
    return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}

template <typename T>
cudaError_t cudaMallocAsync(T** pointer, size_t bytes, cudaStream_t stream) {
    return cudaMallocAsync(reinterpret_cast<void**>(pointer), bytes, stream);
}

template <typename T>
cudaError_t cudaMallocHost(T** pointer, size_t bytes) {
    return cudaMallocHost(reinterpret_cast<void**>(pointer), bytes);
}

template <typename T>
cudaError_t cudaHostAlloc(T** pointer, size_t bytes, unsigned flags) {
    return cudaHostAlloc(reinterpret_cast<void**>(pointer), bytes, flags);
}

template <typename... Parameters>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Parameters...),
                                 cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <typename... Parameters>
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks,
                                                          void (*)(Parameters...), int,
                                                          size_t) {
    *blocks = 2;
    return cudaSuccess;
}

/// Copies the arguments' values now and runs the kernel later, like every launch.
template <typename... Parameters, typename... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config,
                               void (*kernel)(Parameters...), Arguments&&... arguments) {
    std::tuple<Parameters...> values(std::forward<Arguments>(arguments)...);
    return emulated::launch(*config, reinterpret_cast<const void*>(kernel),
                            [kernel, values] { std::apply(kernel, values); });
}

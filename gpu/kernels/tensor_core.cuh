#pragma once

#include <cstdint>

#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/team.cuh"

namespace lockstep::gpu {

// Tensor cores multiply bf16 and add in f32, from compute capability 8.0 on. A whole warp
// computes a product together: each thread holds a part of both matrices and of the
// result. The PTX ISA defines these parts ("mma.m16n8k16", "ldmatrix", "cp.async"). All
// threads of the warp must call these functions together.

/// Two bf16 numbers in one register, the first in the lower half.
using Bf16Pair = std::uint32_t;

#ifdef __CUDACC__

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800

/// sums (16 x 8) += a (16 x 16) times b (16 x 8, as two halves of 8 rows).
__device__ inline void multiply_add(float (&sums)[4], const Bf16Pair (&a)[4],
                                    Bf16Pair upper, Bf16Pair lower) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(upper), "r"(lower));
}

/// Loads four matrices of 8 x 8 from shared memory. `row` is the beginning of one row, a
/// multiple of 16 bytes: threads 0 to 7 give the rows of the first matrix, and so on. A
/// thread gets two adjacent numbers of row lane / 4 of each matrix.
__device__ inline void load_matrices(Bf16Pair (&to)[4], const Bf16* row) {
    const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/// Loads the transposed matrices, in the same way.
__device__ inline void load_transposed(Bf16Pair (&to)[4], const Bf16* row) {
    const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(row));
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/// Returns both numbers, rounded to nearest.
__device__ inline Bf16Pair pair_of(float first, float second) {
    Bf16Pair pair;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
    return pair;
}

/// Starts to copy 16 bytes to shared memory, or zeros if `is_there` is false. Both
/// addresses must be multiples of 16.
__device__ inline void start_copy(void* to, const void* from, bool is_there) {
    const auto at = static_cast<std::uint32_t>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(at), "l"(from), "r"(is_there ? 16 : 0)
                 : "memory");
}

/// Makes one group of the copies that this thread has started since the last group.
__device__ inline void end_group_of_copies() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/// Waits for this thread's copies, except those of the last group.
__device__ inline void wait_for_all_but_last_group() {
    asm volatile("cp.async.wait_group 1;" ::: "memory");
}

#else

// For older GPUs, these functions only have to compile: they are never called there
// (Device::takes_bf16).
template <typename... Any>
__device__ void multiply_add(Any&&...) {
    __trap();
}
template <typename... Any>
__device__ void load_matrices(Any&&...) {
    __trap();
}
template <typename... Any>
__device__ void load_transposed(Any&&...) {
    __trap();
}
__device__ inline Bf16Pair pair_of(float, float) {
    __trap();
    return 0;
}
template <typename... Any>
__device__ void start_copy(Any&&...) {
    __trap();
}
__device__ inline void end_group_of_copies() {}
__device__ inline void wait_for_all_but_last_group() {}

#endif

/// Returns the shared memory of the block, which has the size that the launch gave.
template <typename Memory>
__device__ Memory& block_memory() {
    extern __shared__ uint4 bytes_of_block[];
    return *reinterpret_cast<Memory*>(bytes_of_block);
}

#else

using emulated::block_memory;
using emulated::end_group_of_copies;
using emulated::load_matrices;
using emulated::load_transposed;
using emulated::multiply_add;
using emulated::start_copy;
using emulated::wait_for_all_but_last_group;

__device__ inline Bf16Pair pair_of(float first, float second) {
    return Bf16(first).bits | Bf16Pair{Bf16(second).bits} << 16;
}

#endif

}  // namespace lockstep::gpu

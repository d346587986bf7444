#pragma once

#include <type_traits>

#include <cuda_runtime.h>

#include "src/core/bf16.hpp"

namespace lockstep::gpu {

// A kernel is written for the type S in which numbers are stored, and computes in
// Computed<S>. Numbers are widened when they are loaded and rounded once when they are
// stored. Both happen in load() and store() (gpu/kernels/pack.cuh), or by hand for single
// numbers. A pack has as many numbers as a pack of Computed<S>. So a kernel sums bf16 in
// the same order as f32, and its results are those of f32, rounded.

template <typename S>
using Computed = std::conditional_t<std::is_same_v<S, Bf16>, float, S>;

/// Numbers of a tensor in a GPU's memory, f32, f64 or bf16, without their type. A launch
/// looks up the type once, for all of its operands.
struct Numbers {
    void* data = nullptr;
    int bytes = 0;  ///< bytes of one number

    Numbers() = default;
    /// The numbers of a Tensor; nvcc cannot read Tensor's header.
    template <typename Tensor>
    Numbers(const Tensor& tensor)
        : data(tensor.bytes_begin()), bytes(static_cast<int>(bytes_of(tensor.dtype()))) {}

    template <typename T>
    constexpr T* as() const {
        return static_cast<T*>(data);
    }
};

/// Returns f(a value of the numbers' type).
template <typename F>
auto with_type(const Numbers& numbers, const F& f) {
    if (numbers.bytes == sizeof(float)) return f(float{});
    if (numbers.bytes == sizeof(Bf16)) return f(Bf16{});
    return f(double{});
}

/// Returns f(a value of the numbers' type), which is f32 or f64.
template <typename F>
auto with_wide_type(const Numbers& numbers, const F& f) {
    if (numbers.bytes == sizeof(float)) return f(float{});
    return f(double{});
}

}  // namespace lockstep::gpu

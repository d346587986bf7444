#pragma once

#include <type_traits>

#include <cuda_runtime.h>

#include "src/core/bf16.hpp"

namespace lockstep::gpu {

// A kernel is written for the type S that numbers are stored as, and computes in
// Computed<S>. What it loads is widened and what it stores is rounded once, in load() and
// store() (gpu/kernels/pack.cuh) or where one number is read or written; nothing between
// knows of it. Packs have as many numbers as those of Computed<S>, so a kernel adds up
// bf16 in the order in which it adds up f32, and its results are f32's, rounded.

template <typename S>
using Computed = std::conditional_t<std::is_same_v<S, Bf16>, float, S>;

/// Numbers of a tensor in a GPU's memory, f32, f64 or bf16. Who launches a kernel passes
/// them on without their type, which the launch looks up once, for all of its operands.
struct Numbers {
    void* data = nullptr;
    int bytes = 0;  ///< of one number

    Numbers() = default;
    /// Those of a Tensor, whose header nvcc cannot read.
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
auto with_type(const Numbers& of, const F& f) {
    if (of.bytes == sizeof(float)) return f(float{});
    if (of.bytes == sizeof(Bf16)) return f(Bf16{});
    return f(double{});
}

/// Does so for numbers that are f32 or f64.
template <typename F>
auto with_wide_type(const Numbers& of, const F& f) {
    if (of.bytes == sizeof(float)) return f(float{});
    return f(double{});
}

}  // namespace lockstep::gpu

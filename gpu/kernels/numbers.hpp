#pragma once

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// Numbers of a tensor in a GPU's memory, f32 or f64. Who launches a kernel passes them
/// on without their type, which the launch looks up once, for all of its operands.
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

/// Returns f(a value of the numbers' type, float or double).
template <typename F>
auto with_type(const Numbers& of, const F& f) {
    if (of.bytes == sizeof(float)) return f(float{});
    return f(double{});
}

}  // namespace lockstep::gpu

#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "src/core/dtype.hpp"
#include "src/core/require.hpp"

namespace lockstep {

/// Calls `f` with a value of the C++ type of `dtype`, f32 or f64.
template <typename F>
void with_real(DType dtype, F&& f) {
    switch (dtype) {
        case DType::f32:
            return f(float{});
        case DType::f64:
            return f(double{});
        default:
            throw UsageError("no arithmetic in " + std::string(name_of(dtype)));
    }
}

/// Like with_real, and also for bf16.
template <typename F>
void with_floating(DType dtype, F&& f) {
    if (dtype == DType::bf16) return f(Bf16{});
    with_real(dtype, std::forward<F>(f));
}

/// Like with_real, and also for i32.
template <typename F>
void with_number(DType dtype, F&& f) {
    if (dtype == DType::i32) return f(std::int32_t{});
    with_real(dtype, std::forward<F>(f));
}

}  // namespace lockstep

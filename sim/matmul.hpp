#pragma once

#include <cstdint>

#include "src/core/tensor.hpp"
#include "src/device/options.hpp"

namespace lockstep::sim {

/// c (m, n) (+)= op(a) (m, k) times op(b) (k, n).
template <typename T>
struct Product {
    T* c;
    const T* a;
    const T* b;
    std::int64_t m, k, n;
    MatmulOptions options;
};

template <typename T>
void multiply_matrices(const Product<T>& product);

extern template void multiply_matrices(const Product<float>&);
extern template void multiply_matrices(const Product<double>&);

}  // namespace lockstep::sim

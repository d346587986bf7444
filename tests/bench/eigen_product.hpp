#pragma once

#include <cstdint>

#include "src/device/options.hpp"

namespace lockstep::bench {

/// c (m, n) = op(a) (m, k) op(b) (k, n), by unchanged Eigen.
template <typename T>
using EigenProduct = void (*)(T* c, const T* a, const T* b, std::int64_t m,
                              std::int64_t k, std::int64_t n, MatmulOptions options);

/// Eigen, compiled for one width of vectors.
struct EigenOfWidth {
    EigenProduct<float> f32;
    EigenProduct<double> f64;
};

extern const EigenOfWidth kEigen256;
#ifdef __x86_64__
extern const EigenOfWidth kEigen512;
#endif

}  // namespace lockstep::bench

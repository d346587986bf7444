#include <immintrin.h>

#include "sim/matmul_kernel.hpp"

namespace lockstep::sim {

namespace {

struct Fused {
    static __m256 add(__m256 a, __m256 b, __m256 sum) {
        return _mm256_fmadd_ps(a, b, sum);
    }
    static __m256d add(__m256d a, __m256d b, __m256d sum) {
        return _mm256_fmadd_pd(a, b, sum);
    }
};

}  // namespace

extern const MatmulKernel kMatmulAvx2{
    "avx2",
    [] {
        return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
    },
    Kernel<float, 32, 4, 3, Fused>::multiply, Kernel<double, 32, 4, 3, Fused>::multiply};

}  // namespace lockstep::sim

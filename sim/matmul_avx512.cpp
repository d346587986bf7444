#include <immintrin.h>

#include "sim/matmul_kernel.hpp"

namespace lockstep::sim {

namespace {

struct Fused {
    static __m512 add(__m512 a, __m512 b, __m512 sum) {
        return _mm512_fmadd_ps(a, b, sum);
    }
    static __m512d add(__m512d a, __m512d b, __m512d sum) {
        return _mm512_fmadd_pd(a, b, sum);
    }
};

}  // namespace

extern const MatmulKernel kMatmulAvx512{
    "avx512",
    [] {
        return __builtin_cpu_supports("avx512f") != 0 &&
               __builtin_cpu_supports("fma") != 0;
    },
    Kernel<float, 64, 8, 3, Fused>::multiply, Kernel<double, 64, 8, 3, Fused>::multiply};

}  // namespace lockstep::sim

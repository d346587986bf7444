// The kernels of an instruction set. Meson compiles this file for each: MATMUL_AVX512,
// MATMUL_AVX2, and MATMUL_PLAIN, which every processor of the architecture can run.

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__FMA__)
#include <immintrin.h>
#endif

#include "sim/matmul_kernel.hpp"

namespace lockstep::sim {

namespace {

#if defined(__aarch64__)

struct Fused {
    static float32x4_t add(float32x4_t a, float32x4_t b, float32x4_t sum) {
        return vfmaq_f32(sum, a, b);
    }
    static float64x2_t add(float64x2_t a, float64x2_t b, float64x2_t sum) {
        return vfmaq_f64(sum, a, b);
    }
};

#elif defined(__FMA__)

struct Fused {
#ifdef __AVX512F__
    static __m512 add(__m512 a, __m512 b, __m512 sum) {
        return _mm512_fmadd_ps(a, b, sum);
    }
    static __m512d add(__m512d a, __m512d b, __m512d sum) {
        return _mm512_fmadd_pd(a, b, sum);
    }
#endif
    static __m256 add(__m256 a, __m256 b, __m256 sum) {
        return _mm256_fmadd_ps(a, b, sum);
    }
    static __m256d add(__m256d a, __m256d b, __m256d sum) {
        return _mm256_fmadd_pd(a, b, sum);
    }
    static __m128 add(__m128 a, __m128 b, __m128 sum) {
        return _mm_fmadd_ps(a, b, sum);
    }
    static __m128d add(__m128d a, __m128d b, __m128d sum) {
        return _mm_fmadd_pd(a, b, sum);
    }
};

#else

/// This set has no fused multiply-add, so results are rounded twice.
struct Fused {
    template <typename Vector>
    static Vector add(Vector a, Vector b, Vector sum) {
        return a * b + sum;
    }
};

#endif

/// A tile of `Rows` rows by three vectors stays in the registers.
template <int Bytes, int Rows>
constexpr MatmulKernel kernel(const char* name, bool (*runs_here)()) {
    return {name, runs_here, Kernel<float, Bytes, Rows, 3, Fused>::multiply,
            Kernel<double, Bytes, Rows, 3, Fused>::multiply};
}

}  // namespace

#if defined(MATMUL_AVX512)
extern const MatmulKernel kMatmulAvx512 = kernel<64, 8>("avx512", [] {
    return __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("fma") != 0;
});
#elif defined(MATMUL_AVX2)
extern const MatmulKernel kMatmulAvx2 = kernel<32, 4>("avx2", [] {
    return __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0;
});
#elif defined(MATMUL_PLAIN) && defined(__aarch64__)  // with 32 registers
extern const MatmulKernel kMatmulPlain = kernel<16, 8>("plain", [] { return true; });
#elif defined(MATMUL_PLAIN)
extern const MatmulKernel kMatmulPlain = kernel<16, 4>("plain", [] { return true; });
#endif

}  // namespace lockstep::sim

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__FMA__)
#include <immintrin.h>
#endif

#include "sim/matmul_kernel.hpp"

namespace lockstep::sim {

// Each processor of the architecture runs this; aarch64 has 32 registers.
#if defined(__aarch64__)

constexpr int kRegisterRows = 8;

namespace {

struct Fused {
    static float32x4_t add(float32x4_t a, float32x4_t b, float32x4_t sum) {
        return vfmaq_f32(sum, a, b);
    }
    static float64x2_t add(float64x2_t a, float64x2_t b, float64x2_t sum) {
        return vfmaq_f64(sum, a, b);
    }
};

}  // namespace

#else

constexpr int kRegisterRows = 4;

namespace {

struct Fused {
#ifdef __FMA__
    static __m128 add(__m128 a, __m128 b, __m128 sum) {
        return _mm_fmadd_ps(a, b, sum);
    }
    static __m128d add(__m128d a, __m128d b, __m128d sum) {
        return _mm_fmadd_pd(a, b, sum);
    }
#else
    // There is no such instruction: rounded twice.
    template <typename Vector>
    static Vector add(Vector a, Vector b, Vector sum) {
        return a * b + sum;
    }
#endif
};

}  // namespace

#endif

extern const MatmulKernel kMatmulPlain{
    "plain", [] { return true; }, Kernel<float, 16, kRegisterRows, 3, Fused>::multiply,
    Kernel<double, 16, kRegisterRows, 3, Fused>::multiply};

}  // namespace lockstep::sim

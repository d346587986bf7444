#pragma once

#include <cstdint>
#include <cublas_v2.h>

#include "gpu/stream.hpp"
#include "src/core/tensor.hpp"

namespace lockstep::gpu {

/// cuBLAS on one stream. It has a workspace of its own, so that the same product takes
/// the same way, and has the same bits, every time.
class Blas {
  public:
    /// Products of f32 in TF32 where `tf32`.
    Blas(const Stream& stream, Tensor workspace, bool tf32);
    ~Blas();
    Blas(const Blas&) = delete;
    Blas& operator=(const Blas&) = delete;

    /// A row-major matrix as it is stored, and whether its transpose is meant.
    template <typename T>
    struct Operand {
        const T* data;
        std::int64_t columns;
        bool transposed;
    };

    /// c (m, n) = op(a) (m, k) op(b) (k, n), on top of what c holds where `accumulate`.
    template <typename T>
    void multiply(T* c, std::int64_t m, std::int64_t n, std::int64_t k,
                  const Operand<T>& a, const Operand<T>& b, bool accumulate);

  private:
    Tensor workspace_;
    cublasHandle_t handle_ = nullptr;
};

}  // namespace lockstep::gpu

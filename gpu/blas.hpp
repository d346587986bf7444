#pragma once

#include <cstdint>
#include <cublas_v2.h>

#include "gpu/stream.hpp"
#include "src/core/tensor.hpp"

namespace lockstep::gpu {

/// cuBLAS on one stream of the current GPU. It has a workspace of its own, so that the
/// same product takes the same way, and has the same bits, every time. Products of other
/// streams may run beside its own, so it shares the workspace with none of them.
///
/// A handle takes long to make, and to end one cuBLAS waits for the whole GPU. So the
/// process keeps handles for whoever comes next.
class Blas {
  public:
    /// Products of f32 in TF32 where `tf32`; those of bf16 are added up in f32, from the
    /// first term to the last, and rounded once.
    Blas(const Stream& stream, Tensor workspace, bool tf32);
    /// Everything that was put into the stream has ended.
    ~Blas();
    Blas(const Blas&) = delete;
    Blas& operator=(const Blas&) = delete;

    /// A row-major matrix as it is stored, `pitch` elements from a row to the next;
    /// perhaps its transpose is meant.
    template <typename T>
    struct Operand {
        const T* data;
        std::int64_t pitch;
        bool transposed;
    };

    /// c (m, n) = op(a) (m, k) op(b) (k, n), on top of what c holds where `accumulate`.
    template <typename T>
    void multiply(T* c, std::int64_t m, std::int64_t n, std::int64_t k,
                  const Operand<T>& a, const Operand<T>& b, bool accumulate);

    /// `count` products of one shape: c = factor * op(a) op(b), on top of what c holds
    /// where `accumulate`. The steps lead from a product's matrix to the next one's, in
    /// elements; the results may lie between each other's rows, but share no element.
    template <typename T>
    struct Products {
        std::int64_t count;
        std::int64_t m, n, k;
        T* c;
        std::int64_t c_pitch;
        std::int64_t c_step;
        Operand<T> a;
        std::int64_t a_step;
        Operand<T> b;
        std::int64_t b_step;
        double factor;
        bool accumulate;
    };
    template <typename T>
    void multiply(const Products<T>& of);

  private:
    Tensor workspace_;
    int gpu_ = 0;
    cublasHandle_t handle_ = nullptr;
};

}  // namespace lockstep::gpu

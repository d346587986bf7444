#pragma once

#include <cstdint>
#include <cublas_v2.h>

#include "gpu/stream.hpp"
#include "src/core/tensor.hpp"

namespace lockstep::gpu {

/// cuBLAS on one stream of the current GPU. It has its own workspace, so the same product
/// uses the same algorithm and has the same bits every time. Products of other streams
/// may run at the same time, so no other stream uses this workspace.
///
/// A cuBLAS handle takes long to create, and destroying one waits for the whole GPU. So
/// the process keeps handles for later use.
class Blas {
  public:
    /// Products of f32 are computed in TF32 if `tf32`. Products of bf16 are accumulated
    /// in f32, from the first term to the last, and rounded once.
    Blas(const Stream& stream, Tensor workspace, bool tf32);
    /// All work that was put into the stream must be done.
    ~Blas();
    Blas(const Blas&) = delete;
    Blas& operator=(const Blas&) = delete;

    /// A row-major matrix as it is stored, or its transpose. `pitch` is the number of
    /// elements from one row to the next.
    template <typename T>
    struct Operand {
        const T* data;
        std::int64_t pitch;
        bool transposed;
    };

    /// c (m, n) = op(a) (m, k) op(b) (k, n); if `accumulate`, the product is added to c.
    template <typename T>
    void multiply(T* c, std::int64_t m, std::int64_t n, std::int64_t k,
                  const Operand<T>& a, const Operand<T>& b, bool accumulate);

    /// `count` products of one shape: c = factor * op(a) op(b); if `accumulate`, this is
    /// added to c. A step is the number of elements from a product's matrix to the next
    /// product's matrix. Rows of different results may be interleaved, but no two results
    /// share an element.
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
    void multiply(const Products<T>& products);

  private:
    Tensor workspace_;
    int gpu_ = 0;
    cublasHandle_t handle_ = nullptr;
};

}  // namespace lockstep::gpu

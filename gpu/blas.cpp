#include "gpu/blas.hpp"

#include <map>
#include <mutex>
#include <utility>

#include "gpu/check.hpp"

namespace lockstep::gpu {

namespace {

cublasOperation_t operation(bool transposed) {
    return transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
}

/// The cuBLAS handles that are not in use, by GPU. The shelf is never destroyed, because
/// CUDA may end before the process does.
class Shelf {
  public:
    static Shelf& of_process() {
        static auto* const shelf = new Shelf;
        return *shelf;
    }

    cublasHandle_t take(int gpu) {
        const std::lock_guard lock(mutex_);
        auto idle = idle_.extract(gpu);
        if (idle) return idle.mapped();
        cublasHandle_t made = nullptr;
        GPU_CHECK(cublasCreate(&made));
        return made;
    }
    void put(int gpu, cublasHandle_t handle) {
        const std::lock_guard lock(mutex_);
        idle_.emplace(gpu, handle);
    }

  private:
    std::mutex mutex_;
    std::multimap<int, cublasHandle_t> idle_;
};

}  // namespace

Blas::Blas(const Stream& stream, Tensor workspace, bool tf32)
    : workspace_(std::move(workspace)) {
    GPU_CHECK(cudaGetDevice(&gpu_));
    handle_ = Shelf::of_process().take(gpu_);
    try {
        // Set the stream first: this call also resets cuBLAS to its own workspace.
        GPU_CHECK(cublasSetStream(handle_, stream.get()));
        GPU_CHECK(cublasSetWorkspace(handle_, workspace_.bytes_begin(),
                                     static_cast<std::size_t>(workspace_.bytes())));
        const int math = (tf32 ? CUBLAS_TF32_TENSOR_OP_MATH : CUBLAS_DEFAULT_MATH) |
                         CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
        GPU_CHECK(cublasSetMathMode(handle_, static_cast<cublasMath_t>(math)));
    } catch (...) {
        Shelf::of_process().put(gpu_, handle_);
        throw;
    }
}

Blas::~Blas() {
    Shelf::of_process().put(gpu_, handle_);
}

// cuBLAS stores matrices by columns: its b, n x k, is our b (k, n) by rows. So we ask
// cuBLAS for the transpose, c^T = op(b)^T op(a)^T.

template <>
void Blas::multiply(float* c, std::int64_t m, std::int64_t n, std::int64_t k,
                    const Operand<float>& a, const Operand<float>& b, bool accumulate) {
    const float one = 1;
    const float beta = accumulate ? 1 : 0;
    GPU_CHECK(cublasSgemm_64(handle_, operation(b.transposed), operation(a.transposed), n,
                             m, k, &one, b.data, b.pitch, a.data, a.pitch, &beta, c, n));
}

template <>
void Blas::multiply(double* c, std::int64_t m, std::int64_t n, std::int64_t k,
                    const Operand<double>& a, const Operand<double>& b, bool accumulate) {
    const double one = 1;
    const double beta = accumulate ? 1 : 0;
    GPU_CHECK(cublasDgemm_64(handle_, operation(b.transposed), operation(a.transposed), n,
                             m, k, &one, b.data, b.pitch, a.data, a.pitch, &beta, c, n));
}

template <>
void Blas::multiply(Bf16* c, std::int64_t m, std::int64_t n, std::int64_t k,
                    const Operand<Bf16>& a, const Operand<Bf16>& b, bool accumulate) {
    const float one = 1;
    const float beta = accumulate ? 1 : 0;
    GPU_CHECK(cublasGemmEx_64(handle_, operation(b.transposed), operation(a.transposed),
                              n, m, k, &one, b.data, CUDA_R_16BF, b.pitch, a.data,
                              CUDA_R_16BF, a.pitch, &beta, c, CUDA_R_16BF, n,
                              CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

template <>
void Blas::multiply(const Products<float>& products) {
    const auto factor = static_cast<float>(products.factor);
    const float beta = products.accumulate ? 1 : 0;
    GPU_CHECK(cublasSgemmStridedBatched_64(
        handle_, operation(products.b.transposed), operation(products.a.transposed),
        products.n, products.m, products.k, &factor, products.b.data, products.b.pitch,
        products.b_step, products.a.data, products.a.pitch, products.a_step, &beta,
        products.c, products.c_pitch, products.c_step, products.count));
}

template <>
void Blas::multiply(const Products<double>& products) {
    const double beta = products.accumulate ? 1 : 0;
    GPU_CHECK(cublasDgemmStridedBatched_64(
        handle_, operation(products.b.transposed), operation(products.a.transposed),
        products.n, products.m, products.k, &products.factor, products.b.data,
        products.b.pitch, products.b_step, products.a.data, products.a.pitch,
        products.a_step, &beta, products.c, products.c_pitch, products.c_step,
        products.count));
}

template <>
void Blas::multiply(const Products<Bf16>& products) {
    const auto factor = static_cast<float>(products.factor);
    const float beta = products.accumulate ? 1 : 0;
    GPU_CHECK(cublasGemmStridedBatchedEx_64(
        handle_, operation(products.b.transposed), operation(products.a.transposed),
        products.n, products.m, products.k, &factor, products.b.data, CUDA_R_16BF,
        products.b.pitch, products.b_step, products.a.data, CUDA_R_16BF, products.a.pitch,
        products.a_step, &beta, products.c, CUDA_R_16BF, products.c_pitch,
        products.c_step, products.count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
}

}  // namespace lockstep::gpu

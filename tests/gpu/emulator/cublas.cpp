#include "tests/gpu/emulator/fault.hpp"
#include "tests/gpu/emulator/gemm.hpp"
#include "tests/gpu/emulator/handles.hpp"
#include "tests/gpu/emulator/include/cublas_v2.h"
#include "tests/gpu/emulator/memory.hpp"
#include "tests/gpu/emulator/runtime.hpp"
#include "tests/gpu/emulator/stream.hpp"

using namespace emulated;

namespace {

/// These bits of a math mode choose the arithmetic of products. The other bits only
/// forbid reductions in lower precision.
constexpr int kMathKinds = 15;

struct Blas {
    cudaStream_t stream = nullptr;
    cublasMath_t math = CUBLAS_DEFAULT_MATH;
};

Handles<cublasHandle_t, Blas>& handles() {
    return immortal<Handles<cublasHandle_t, Blas>>();
}

template <typename Call>
cublasStatus_t with_blas(cublasHandle_t handle, const Call& call) {
    const std::shared_ptr<Blas> blas = handles().find(handle);
    return blas ? call(*blas) : CUBLAS_STATUS_NOT_INITIALIZED;
}

bool is_operation(cublasOperation_t operation) {
    return operation >= CUBLAS_OP_N && operation <= CUBLAS_OP_C;
}

template <typename T>
void require_matrix(const T* data, std::int64_t rows, std::int64_t columns,
                    std::int64_t stride, const char* what) {
    if (rows == 0 || columns == 0) return;
    require_reachable(
        data, static_cast<std::size_t>((columns - 1) * stride + rows) * sizeof(T), what);
}

template <typename T>
cublasStatus_t start(const Blas& blas, cublasOperation_t transpose_a,
                     cublasOperation_t transpose_b, Product<T> product) {
    if (!is_operation(transpose_a) || !is_operation(transpose_b) || !product.possible())
        return CUBLAS_STATUS_INVALID_VALUE;
    const std::shared_ptr<Stream> stream = find_stream(blas.stream);
    if (!stream || is_faulted(stream->device())) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (product.m == 0 || product.n == 0) return CUBLAS_STATUS_SUCCESS;
    require_matrix(product.a, product.rows_a(), product.columns_a(), product.lda,
                   "matrix A of a product");
    require_matrix(product.b, product.rows_b(), product.columns_b(), product.ldb,
                   "matrix B of a product");
    require_matrix(product.c, product.m, product.n, product.ldc, "matrix C of a product");
    product.tf32 = (blas.math & kMathKinds) == CUBLAS_TF32_TENSOR_OP_MATH;
    put_launch(stream, [product] { product.run(); });
    return CUBLAS_STATUS_SUCCESS;
}

/// The steps from one product's matrices to the next product's matrices.
struct Strides {
    long long a, b, c;
};

template <typename T>
cublasStatus_t start_batch(const Blas& blas, cublasOperation_t transpose_a,
                           cublasOperation_t transpose_b, Product<T> product,
                           const Strides& strides, std::int64_t count) {
    if (count < 0 || (count > 1 && !product.results_apart(strides.c, count)))
        return CUBLAS_STATUS_INVALID_VALUE;
    for (std::int64_t i = 0; i < count; ++i) {
        const cublasStatus_t status = start(blas, transpose_a, transpose_b, product);
        if (status != CUBLAS_STATUS_SUCCESS) return status;
        product.a += strides.a;
        product.b += strides.b;
        product.c += strides.c;
    }
    return CUBLAS_STATUS_SUCCESS;
}

}  // namespace

const char* cublasGetStatusName(cublasStatus_t status) {
    switch (status) {
        case CUBLAS_STATUS_SUCCESS:
            return "CUBLAS_STATUS_SUCCESS";
        case CUBLAS_STATUS_NOT_INITIALIZED:
            return "CUBLAS_STATUS_NOT_INITIALIZED";
        case CUBLAS_STATUS_ALLOC_FAILED:
            return "CUBLAS_STATUS_ALLOC_FAILED";
        case CUBLAS_STATUS_INVALID_VALUE:
            return "CUBLAS_STATUS_INVALID_VALUE";
        case CUBLAS_STATUS_EXECUTION_FAILED:
            return "CUBLAS_STATUS_EXECUTION_FAILED";
        case CUBLAS_STATUS_INTERNAL_ERROR:
            return "CUBLAS_STATUS_INTERNAL_ERROR";
        case CUBLAS_STATUS_NOT_SUPPORTED:
            return "CUBLAS_STATUS_NOT_SUPPORTED";
    }
    return "unknown status";
}

const char* cublasGetStatusString(cublasStatus_t status) {
    return status == CUBLAS_STATUS_SUCCESS ? "success" : "the call failed";
}

cublasStatus_t cublasCreate(cublasHandle_t* handle) {
    if (begin() != cudaSuccess || is_faulted(current_device()))
        return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = handles().add(std::make_shared<Blas>());
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy(cublasHandle_t handle) {
    if (!handles().remove(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    wait_for_device(current_device());  // as cuBLAS does
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasGetVersion(cublasHandle_t handle, int* version) {
    return with_blas(handle, [&](const Blas&) {
        *version = CUBLAS_VER_MAJOR * 10000 + CUBLAS_VER_MINOR * 100;
        return CUBLAS_STATUS_SUCCESS;
    });
}

cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream) {
    return with_blas(handle, [&](Blas& blas) {
        blas.stream = stream;
        return CUBLAS_STATUS_SUCCESS;
    });
}

cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes) {
    return with_blas(handle, [&](const Blas&) {
        require_reachable(workspace, bytes, "the workspace of cuBLAS");
        return reinterpret_cast<std::uintptr_t>(workspace) % 256 == 0
                   ? CUBLAS_STATUS_SUCCESS
                   : CUBLAS_STATUS_INVALID_VALUE;
    });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    return with_blas(handle, [&](Blas& blas) {
        blas.math = mode;
        return CUBLAS_STATUS_SUCCESS;
    });
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode) {
    return with_blas(handle, [&](const Blas& blas) {
        *mode = blas.math;
        return CUBLAS_STATUS_SUCCESS;
    });
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t) {
    return with_blas(handle, [](const Blas&) { return CUBLAS_STATUS_SUCCESS; });
}

cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode) {
    return with_blas(handle, [&](const Blas&) {
        return mode == CUBLAS_POINTER_MODE_HOST ? CUBLAS_STATUS_SUCCESS
                                                : CUBLAS_STATUS_NOT_SUPPORTED;
    });
}

cublasStatus_t cublasSgemm_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                              cublasOperation_t transpose_b, int64_t m, int64_t n,
                              int64_t k, const float* alpha, const float* a, int64_t lda,
                              const float* b, int64_t ldb, const float* beta, float* c,
                              int64_t ldc) {
    return with_blas(handle, [&](const Blas& blas) {
        return start(
            blas, transpose_a, transpose_b,
            Product<float>{transpose_a != CUBLAS_OP_N, transpose_b != CUBLAS_OP_N, m, n,
                           k, *alpha, *beta, a, lda, b, ldb, c, ldc});
    });
}

cublasStatus_t cublasDgemm_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                              cublasOperation_t transpose_b, int64_t m, int64_t n,
                              int64_t k, const double* alpha, const double* a,
                              int64_t lda, const double* b, int64_t ldb,
                              const double* beta, double* c, int64_t ldc) {
    return with_blas(handle, [&](const Blas& blas) {
        return start(
            blas, transpose_a, transpose_b,
            Product<double>{transpose_a != CUBLAS_OP_N, transpose_b != CUBLAS_OP_N, m, n,
                            k, *alpha, *beta, a, lda, b, ldb, c, ldc});
    });
}

cublasStatus_t cublasSgemmStridedBatched_64(
    cublasHandle_t handle, cublasOperation_t transpose_a, cublasOperation_t transpose_b,
    int64_t m, int64_t n, int64_t k, const float* alpha, const float* a, int64_t lda,
    long long stride_a, const float* b, int64_t ldb, long long stride_b,
    const float* beta, float* c, int64_t ldc, long long stride_c, int64_t count) {
    return with_blas(handle, [&](const Blas& blas) {
        return start_batch(
            blas, transpose_a, transpose_b,
            Product<float>{transpose_a != CUBLAS_OP_N, transpose_b != CUBLAS_OP_N, m, n,
                           k, *alpha, *beta, a, lda, b, ldb, c, ldc},
            {stride_a, stride_b, stride_c}, count);
    });
}

cublasStatus_t cublasDgemmStridedBatched_64(
    cublasHandle_t handle, cublasOperation_t transpose_a, cublasOperation_t transpose_b,
    int64_t m, int64_t n, int64_t k, const double* alpha, const double* a, int64_t lda,
    long long stride_a, const double* b, int64_t ldb, long long stride_b,
    const double* beta, double* c, int64_t ldc, long long stride_c, int64_t count) {
    return with_blas(handle, [&](const Blas& blas) {
        return start_batch(
            blas, transpose_a, transpose_b,
            Product<double>{transpose_a != CUBLAS_OP_N, transpose_b != CUBLAS_OP_N, m, n,
                            k, *alpha, *beta, a, lda, b, ldb, c, ldc},
            {stride_a, stride_b, stride_c}, count);
    });
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                               cublasOperation_t transpose_b, int64_t m, int64_t n,
                               int64_t k, const void* alpha, const void* a,
                               cudaDataType_t type_a, int64_t lda, const void* b,
                               cudaDataType_t type_b, int64_t ldb, const void* beta,
                               void* c, cudaDataType_t type_c, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t algorithm) {
    return cublasGemmStridedBatchedEx_64(handle, transpose_a, transpose_b, m, n, k, alpha,
                                         a, type_a, lda, 0, b, type_b, ldb, 0, beta, c,
                                         type_c, ldc, 0, 1, compute, algorithm);
}

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t transpose_a, cublasOperation_t transpose_b,
    int64_t m, int64_t n, int64_t k, const void* alpha, const void* a,
    cudaDataType_t type_a, int64_t lda, long long stride_a, const void* b,
    cudaDataType_t type_b, int64_t ldb, long long stride_b, const void* beta, void* c,
    cudaDataType_t type_c, int64_t ldc, long long stride_c, int64_t count,
    cublasComputeType_t compute, cublasGemmAlgo_t) {
    using lockstep::Bf16;
    if (type_a != CUDA_R_16BF || type_b != CUDA_R_16BF || type_c != CUDA_R_16BF ||
        compute != CUBLAS_COMPUTE_32F)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    return with_blas(handle, [&](const Blas& blas) {
        return start_batch(
            blas, transpose_a, transpose_b,
            Product<Bf16>{transpose_a != CUBLAS_OP_N, transpose_b != CUBLAS_OP_N, m, n, k,
                          *static_cast<const float*>(alpha),
                          *static_cast<const float*>(beta), static_cast<const Bf16*>(a),
                          lda, static_cast<const Bf16*>(b), ldb, static_cast<Bf16*>(c),
                          ldc},
            {stride_a, stride_b, stride_c}, count);
    });
}

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transpose_a,
                           cublasOperation_t transpose_b, int m, int n, int k,
                           const float* alpha, const float* a, int lda, const float* b,
                           int ldb, const float* beta, float* c, int ldc) {
    return cublasSgemm_64(handle, transpose_a, transpose_b, m, n, k, alpha, a, lda, b,
                          ldb, beta, c, ldc);
}

cublasStatus_t cublasDgemm(cublasHandle_t handle, cublasOperation_t transpose_a,
                           cublasOperation_t transpose_b, int m, int n, int k,
                           const double* alpha, const double* a, int lda, const double* b,
                           int ldb, const double* beta, double* c, int ldc) {
    return cublasDgemm_64(handle, transpose_a, transpose_b, m, n, k, alpha, a, lda, b,
                          ldb, beta, c, ldc);
}

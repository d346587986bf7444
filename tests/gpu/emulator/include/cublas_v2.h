// The part of cuBLAS that gpu/ uses, emulated on the CPU (see cuda_runtime.h): plain
// loops on the handle's stream. Sums are in the order of k and in the matrices' type.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda_runtime.h"

#define CUBLAS_VER_MAJOR 13
#define CUBLAS_VER_MINOR 0

using cublasHandle_t = struct cublasContext*;

enum cublasStatus_t {
    CUBLAS_STATUS_SUCCESS = 0,
    CUBLAS_STATUS_NOT_INITIALIZED = 1,
    CUBLAS_STATUS_ALLOC_FAILED = 3,
    CUBLAS_STATUS_INVALID_VALUE = 7,
    CUBLAS_STATUS_EXECUTION_FAILED = 13,
    CUBLAS_STATUS_INTERNAL_ERROR = 14,
    CUBLAS_STATUS_NOT_SUPPORTED = 15
};

enum cublasOperation_t { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1, CUBLAS_OP_C = 2 };

enum cublasPointerMode_t { CUBLAS_POINTER_MODE_HOST = 0, CUBLAS_POINTER_MODE_DEVICE = 1 };

enum cublasAtomicsMode_t { CUBLAS_ATOMICS_NOT_ALLOWED = 0, CUBLAS_ATOMICS_ALLOWED = 1 };

enum cudaDataType_t { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16BF = 14 };
enum cublasComputeType_t { CUBLAS_COMPUTE_32F = 68 };
enum cublasGemmAlgo_t { CUBLAS_GEMM_DEFAULT = -1 };

enum cublasMath_t {
    CUBLAS_DEFAULT_MATH = 0,
    CUBLAS_PEDANTIC_MATH = 2,
    CUBLAS_TF32_TENSOR_OP_MATH = 3,
    CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION = 16
};

extern "C" {

const char* cublasGetStatusName(cublasStatus_t status);
const char* cublasGetStatusString(cublasStatus_t status);

cublasStatus_t cublasCreate(cublasHandle_t* handle);
cublasStatus_t cublasDestroy(cublasHandle_t handle);
cublasStatus_t cublasGetVersion(cublasHandle_t handle, int* version);
cublasStatus_t cublasSetStream(cublasHandle_t handle, cudaStream_t stream);
cublasStatus_t cublasSetWorkspace(cublasHandle_t handle, void* workspace, size_t bytes);
cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode);
cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t* mode);
cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode);
cublasStatus_t cublasSetPointerMode(cublasHandle_t handle, cublasPointerMode_t mode);

cublasStatus_t cublasSgemm(cublasHandle_t handle, cublasOperation_t transpose_a,
                           cublasOperation_t transpose_b, int m, int n, int k,
                           const float* alpha, const float* a, int lda, const float* b,
                           int ldb, const float* beta, float* c, int ldc);
cublasStatus_t cublasDgemm(cublasHandle_t handle, cublasOperation_t transpose_a,
                           cublasOperation_t transpose_b, int m, int n, int k,
                           const double* alpha, const double* a, int lda, const double* b,
                           int ldb, const double* beta, double* c, int ldc);
cublasStatus_t cublasSgemm_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                              cublasOperation_t transpose_b, int64_t m, int64_t n,
                              int64_t k, const float* alpha, const float* a, int64_t lda,
                              const float* b, int64_t ldb, const float* beta, float* c,
                              int64_t ldc);
cublasStatus_t cublasDgemm_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                              cublasOperation_t transpose_b, int64_t m, int64_t n,
                              int64_t k, const double* alpha, const double* a,
                              int64_t lda, const double* b, int64_t ldb,
                              const double* beta, double* c, int64_t ldc);
// Computes `count` products. The matrices of product i begin i strides after the first.
cublasStatus_t cublasSgemmStridedBatched_64(
    cublasHandle_t handle, cublasOperation_t transpose_a, cublasOperation_t transpose_b,
    int64_t m, int64_t n, int64_t k, const float* alpha, const float* a, int64_t lda,
    long long stride_a, const float* b, int64_t ldb, long long stride_b,
    const float* beta, float* c, int64_t ldc, long long stride_c, int64_t count);
cublasStatus_t cublasDgemmStridedBatched_64(
    cublasHandle_t handle, cublasOperation_t transpose_a, cublasOperation_t transpose_b,
    int64_t m, int64_t n, int64_t k, const double* alpha, const double* a, int64_t lda,
    long long stride_a, const double* b, int64_t ldb, long long stride_b,
    const double* beta, double* c, int64_t ldc, long long stride_c, int64_t count);
// Only for bf16. Products are added up in f32.
cublasStatus_t cublasGemmEx_64(cublasHandle_t handle, cublasOperation_t transpose_a,
                               cublasOperation_t transpose_b, int64_t m, int64_t n,
                               int64_t k, const void* alpha, const void* a,
                               cudaDataType_t type_a, int64_t lda, const void* b,
                               cudaDataType_t type_b, int64_t ldb, const void* beta,
                               void* c, cudaDataType_t type_c, int64_t ldc,
                               cublasComputeType_t compute, cublasGemmAlgo_t algorithm);
cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t handle, cublasOperation_t transpose_a, cublasOperation_t transpose_b,
    int64_t m, int64_t n, int64_t k, const void* alpha, const void* a,
    cudaDataType_t type_a, int64_t lda, long long stride_a, const void* b,
    cudaDataType_t type_b, int64_t ldb, long long stride_b, const void* beta, void* c,
    cudaDataType_t type_c, int64_t ldc, long long stride_c, int64_t count,
    cublasComputeType_t compute, cublasGemmAlgo_t algorithm);

}  // extern "C"

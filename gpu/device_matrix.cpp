#include "gpu/check.hpp"
#include "gpu/device.hpp"
#include "gpu/kernels/matrix.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

namespace {

/// What cuBLAS recommends for a GPU (https://docs.nvidia.com/cuda/cublas/,
/// cublasSetWorkspace).
std::int64_t workspace_bytes() {
    int gpu = 0;
    int generation = 0;
    GPU_CHECK(cudaGetDevice(&gpu));
    GPU_CHECK(
        cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, gpu));
    constexpr int kHopper = 9;
    return std::int64_t{generation >= kHopper ? 32 : 4} << 20;
}

}  // namespace

Blas& Device::blas() {
    if (!blas_)
        blas_ = std::make_unique<Blas>(
            stream_, scratch({workspace_bytes() / bytes_of(DType::f32)}, DType::f32),
            options_.tf32);
    return *blas_;
}

void Device::prepare() {
    constexpr int kExtent = 16;
    const auto multiply = [&]<typename T>(T) {
        const Tensor square = scratch({kExtent, kExtent}, dtype_of<T>());
        const Tensor product = scratch({kExtent, kExtent}, dtype_of<T>());
        compute(ops::Fill{square, 0});
        const Blas::Operand<T> operand{square.data<T>(), kExtent, false};
        blas().multiply(product.data<T>(), kExtent, kExtent, kExtent, operand, operand,
                        false);
    };
    multiply(float{});
    multiply(double{});
    multiply(Bf16{});
    synchronize();
}

namespace {

/// Rows of a tile that cuBLAS multiplies when a row may not depend on how many there are:
/// its choice of a kernel follows from the shape.
constexpr std::int64_t kTileOfRows = 64;

}  // namespace

template <typename T>
void Device::multiply_in_tiles(const ops::Matmul& op) {
    const std::int64_t m = op.m(), n = op.n(), k = op.k();
    const Blas::Operand<T> right{op.b.data<T>(), op.b.shape().columns(),
                                 op.options.transpose_b};
    const auto multiply = [&](T* c, const T* a) {
        blas().multiply(c, kTileOfRows, n, k, Blas::Operand<T>{a, k, false}, right,
                        op.options.accumulate);
    };
    T* const c = op.destination.data<T>();
    const T* const a = op.a.data<const T>();
    const std::int64_t last = m % kTileOfRows, before = m - last;
    for (std::int64_t row = 0; row < before; row += kTileOfRows)
        multiply(c + row * n, a + row * k);
    if (last == 0) return;
    // The last rows are filled up with zeros.
    const Tensor rows = scratch({kTileOfRows, k}, op.a.dtype());
    const Tensor results = scratch({kTileOfRows, n}, op.a.dtype());
    compute(ops::Fill{rows, 0});
    const Tensor own = op.a.flat().slice(before * k, last * k);
    const Tensor to = op.destination.flat().slice(before * n, last * n);
    compute(ops::Copy{rows.flat().slice(0, last * k), own});
    if (op.options.accumulate) compute(ops::Copy{results.flat().slice(0, last * n), to});
    multiply(results.data<T>(), rows.data<const T>());
    compute(ops::Copy{to, results.flat().slice(0, last * n)});
}

template <>
void Device::compute(const ops::Matmul& op) {
    with_floating(op.a.dtype(), [&]<typename T>(T) {
        if (op.options.row_by_row) return multiply_in_tiles<T>(op);
        const Blas::Operand<T> left{op.a.data<T>(), op.a.shape().columns(),
                                    op.options.transpose_a};
        const Blas::Operand<T> right{op.b.data<T>(), op.b.shape().columns(),
                                     op.options.transpose_b};
        blas().multiply(op.destination.data<T>(), op.m(), op.n(), op.k(), left, right,
                        op.options.accumulate);
    });
}

template <>
void Device::compute(const ops::GroupedMatmul& op) {
    op.compute([&](const ops::Matmul& product) { compute(product); },
               [&](const Tensor& matrix) {
                   compute(ops::Fill{matrix, 0});
               });
}

template <>
void Device::compute(const ops::AddBias& op) {
    launch_add_bias(stream_.get(), op.y, op.bias, op.y.shape().rows(),
                    op.y.shape().columns());
}

template <>
void Device::compute(const ops::ScaleRows& op) {
    launch_scale_rows(stream_.get(), op.x, op.factors, op.x.shape().rows(),
                      op.x.shape().columns());
}

template <>
void Device::compute(const ops::RowProducts& op) {
    compute(ops::HeadRowProducts{op.destination, one_head(op.a), one_head(op.b)});
}

template <>
void Device::compute(const ops::AccumulateRows& op) {
    const std::int64_t rows = op.x.shape().rows();
    const std::int64_t columns = op.x.shape().columns();
    const Tensor workspace =
        scratch({accumulate_partials(op.x, rows, columns)}, computed_in(op.x.dtype()));
    launch_accumulate_rows(stream_.get(), workspace, op.destination, op.x, rows, columns);
}

template <>
void Device::compute(const ops::Orthonormalize& op) {
    launch_orthonormalize(stream_.get(), op.x, op.x.shape().rows(),
                          op.x.shape().columns());
}

}  // namespace lockstep::gpu

#include "gpu/check.hpp"
#include "gpu/device.hpp"
#include "gpu/kernels/matrix.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

namespace {

/// Returns the workspace size that NVIDIA recommends for the GPU
/// (https://docs.nvidia.com/cuda/cublas/, cublasSetWorkspace).
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

void Device::each_tile(const Tensor& c, const Tensor& a, bool accumulate,
                       FunctionRef<void(const Tensor&, const Tensor&)> multiply) {
    // cuBLAS chooses its kernel by the shape, so all tiles have the same shape.
    constexpr std::int64_t kTile = 64;
    const auto rows_of = [](const Tensor& matrix, std::int64_t first,
                            std::int64_t count) {
        const std::int64_t columns = matrix.shape().columns();
        return matrix.flat()
            .slice(first * columns, count * columns)
            .reshaped({count, columns});
    };
    const std::int64_t rows = a.shape().matrix_rows(), last = rows % kTile;
    for (std::int64_t row = 0; row + kTile <= rows; row += kTile)
        multiply(rows_of(c, row, kTile), rows_of(a, row, kTile));
    if (last == 0) return;
    const Tensor filled = scratch({kTile, a.shape().columns()}, a.dtype());
    const Tensor results = scratch({kTile, c.shape().columns()}, c.dtype());
    const Tensor to = rows_of(c, rows - last, last);
    compute(ops::Fill{filled, 0});
    compute(ops::Copy{rows_of(filled, 0, last), rows_of(a, rows - last, last)});
    if (accumulate) compute(ops::Copy{rows_of(results, 0, last), to});
    multiply(results, filled);
    compute(ops::Copy{to, rows_of(results, 0, last)});
}

template <>
void Device::compute(const ops::Matmul& op) {
    if (op.options.row_by_row) {
        each_tile(op.destination, op.a, op.options.accumulate,
                  [&](const Tensor& c, const Tensor& a) {
                      MatmulOptions options = op.options;
                      options.row_by_row = false;
                      compute(ops::Matmul{c, a, op.b, options, true});
                  });
        return;
    }
    with_floating(op.a.dtype(), [&]<typename T>(T) {
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
    launch_add_bias(stream_.get(), op.y, op.bias, op.y.shape().matrix_rows(),
                    op.y.shape().columns());
}

template <>
void Device::compute(const ops::ScaleRows& op) {
    launch_scale_rows(stream_.get(), op.x, op.factors, op.x.shape().matrix_rows(),
                      op.x.shape().columns());
}

template <>
void Device::compute(const ops::RowProducts& op) {
    compute(ops::HeadRowProducts{op.destination, one_head(op.a), one_head(op.b)});
}

template <>
void Device::compute(const ops::AccumulateRows& op) {
    const std::int64_t rows = op.x.shape().matrix_rows();
    const std::int64_t columns = op.x.shape().columns();
    const Tensor workspace =
        scratch({accumulate_partials(op.x, rows, columns)}, computed_in(op.x.dtype()));
    launch_accumulate_rows(stream_.get(), workspace, op.destination, op.x, rows, columns);
}

template <>
void Device::compute(const ops::Orthonormalize& op) {
    launch_orthonormalize(stream_.get(), op.x, op.x.shape().matrix_rows(),
                          op.x.shape().columns());
}

}  // namespace lockstep::gpu

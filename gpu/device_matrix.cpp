#include "gpu/device.hpp"
#include "gpu/kernels/matrix.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

Blas& Device::blas() {
    constexpr std::int64_t kWorkspaceBytes = std::int64_t{32} << 20;
    if (!blas_)
        blas_ = std::make_unique<Blas>(
            stream_, scratch({kWorkspaceBytes / bytes_of(DType::f32)}, DType::f32),
            options_.tf32);
    return *blas_;
}

void Device::prepare() {
    constexpr int kExtent = 16;
    const auto multiply = [&]<typename T>(T) {
        const Tensor square = scratch({kExtent, kExtent}, dtype_of<T>());
        const Tensor product = scratch({kExtent, kExtent}, dtype_of<T>());
        do_fill(square, 0);
        const Blas::Operand<T> operand{square.data<T>(), kExtent, false};
        blas().multiply(product.data<T>(), kExtent, kExtent, kExtent, operand, operand,
                        false);
    };
    multiply(float{});
    multiply(double{});
    synchronize();
}

void Device::do_matmul(const Tensor& destination, const Tensor& a, const Tensor& b,
                       const MatmulOptions& options) {
    const std::int64_t m = options.transpose_a ? a.shape().columns() : a.shape().rows();
    const std::int64_t k = options.transpose_a ? a.shape().rows() : a.shape().columns();
    const std::int64_t n = options.transpose_b ? b.shape().rows() : b.shape().columns();
    with_real(a.dtype(), [&]<typename T>(T) {
        const Blas::Operand<T> left{a.data<T>(), a.shape().columns(),
                                    options.transpose_a};
        const Blas::Operand<T> right{b.data<T>(), b.shape().columns(),
                                     options.transpose_b};
        blas().multiply(destination.data<T>(), m, n, k, left, right, options.accumulate);
    });
}

void Device::do_add_bias(const Tensor& y, const Tensor& bias) {
    with_real(y.dtype(), [&]<typename T>(T) {
        launch_add_bias(stream_.get(), y.data<T>(), bias.data<const T>(),
                        y.shape().rows(), y.shape().columns());
    });
}

void Device::do_accumulate_rows(const Tensor& destination, const Tensor& x) {
    const std::int64_t rows = x.shape().rows();
    const std::int64_t columns = x.shape().columns();
    with_real(x.dtype(), [&]<typename T>(T) {
        const Tensor workspace =
            scratch({accumulate_partials<T>(rows, columns)}, x.dtype());
        launch_accumulate_rows(stream_.get(), workspace.data<T>(), destination.data<T>(),
                               x.data<const T>(), rows, columns);
    });
}

}  // namespace lockstep::gpu

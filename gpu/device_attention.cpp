#include "gpu/device.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

// The heads of a batch lie side by side in each row, so one call of cuBLAS multiplies
// them all, `width` elements apart; each batch is a call.

void Device::do_head_products(const Tensor& products, const Heads& x, const Heads& y,
                              double factor) {
    const std::int64_t m = x.rows();
    const std::int64_t n = y.rows();
    with_real(products.dtype(), [&]<typename T>(T) {
        for (std::int64_t batch = 0; batch < x.batches(); ++batch)
            blas().multiply(Blas::Products<T>{
                .count = x.heads,
                .m = m,
                .n = n,
                .k = x.width,
                .c = products.data<T>() + batch * x.heads * m * n,
                .c_pitch = n,
                .c_step = m * n,
                .a = {x.tensor.data<T>() + x.offset(batch, 0), x.pitch(), false},
                .a_step = x.width,
                .b = {y.tensor.data<T>() + y.offset(batch, 0), y.pitch(), true},
                .b_step = y.width,
                .factor = factor,
                .accumulate = false,
            });
    });
}

void Device::do_head_sums(const Heads& destination, const Tensor& weights, const Heads& y,
                          const HeadSumOptions& options, bool accumulate) {
    const std::int64_t m = destination.rows();
    const std::int64_t n = y.rows();
    with_real(weights.dtype(), [&]<typename T>(T) {
        for (std::int64_t batch = 0; batch < y.batches(); ++batch)
            blas().multiply(Blas::Products<T>{
                .count = y.heads,
                .m = m,
                .n = y.width,
                .k = n,
                .c = destination.tensor.data<T>() + destination.offset(batch, 0),
                .c_pitch = destination.pitch(),
                .c_step = destination.width,
                .a = {weights.data<T>() + batch * y.heads * m * n,
                      options.transpose ? m : n, options.transpose},
                .a_step = m * n,
                .b = {y.tensor.data<T>() + y.offset(batch, 0), y.pitch(), false},
                .b_step = y.width,
                .factor = options.factor,
                .accumulate = accumulate,
            });
    });
}

}  // namespace lockstep::gpu

#include <algorithm>

#include "sim/device.hpp"
#include "sim/heads.hpp"
#include "sim/matmul.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::sim {

void Device::do_head_products(const Tensor& products, const Heads& x, const Heads& y,
                              double factor) {
    const std::int64_t m = x.rows();
    const std::int64_t n = y.rows();
    with_real(products.dtype(), [&]<typename T>(T) {
        each_head(x, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            std::vector<T> left = packed<T>(x, x.offset(batch, head));
            for (T& value : left)
                value *= static_cast<T>(factor);
            const std::vector<T> right =
                packed<T>(y, y.offset(batch, head / (x.heads / y.heads)));
            multiply_matrices<T>({products.data<T>() + index * m * n,
                                  left.data(),
                                  right.data(),
                                  m,
                                  x.width,
                                  n,
                                  {.transpose_b = true}});
        });
    });
}

void Device::do_head_sums(const Heads& destination, const Tensor& weights, const Heads& y,
                          const HeadSumOptions& options, bool accumulate) {
    const std::int64_t m = destination.rows();
    const std::int64_t n = y.rows();
    const std::int64_t width = y.width;
    with_real(weights.dtype(), [&]<typename T>(T) {
        std::vector<T> sums(static_cast<std::size_t>(m * width));
        const auto factor = static_cast<T>(options.factor);
        const Heads& whole = destination.heads < y.heads ? y : destination;
        if (!accumulate) do_fill(destination.tensor, 0);
        each_head(whole, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            const std::vector<T> values =
                packed<T>(y, y.offset(batch, head / (whole.heads / y.heads)));
            multiply_matrices<T>({sums.data(),
                                  weights.data<T>() + index * m * n,
                                  values.data(),
                                  m,
                                  n,
                                  width,
                                  {.transpose_a = options.transpose}});
            const std::int64_t into = head / (whole.heads / destination.heads);
            add_packed(destination, destination.offset(batch, into), sums, factor);
        });
    });
}

}  // namespace lockstep::sim

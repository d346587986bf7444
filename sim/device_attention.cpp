#include <algorithm>
#include <vector>

#include "sim/device.hpp"
#include "sim/matmul.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::sim {

namespace {

/// The rows of one head, side by side in memory.
template <typename T>
std::vector<T> packed(const Heads& heads, std::int64_t offset) {
    std::vector<T> rows(static_cast<std::size_t>(heads.rows() * heads.width));
    const T* from = heads.tensor.data<T>() + offset;
    for (std::int64_t row = 0; row < heads.rows(); ++row)
        std::copy_n(from + row * heads.pitch(), heads.width,
                    rows.data() + row * heads.width);
    return rows;
}

/// f(index, batch, head) for every head, counted through.
template <typename F>
void each_head(const Heads& heads, F&& f) {
    for (std::int64_t batch = 0; batch < heads.batches(); ++batch)
        for (std::int64_t head = 0; head < heads.heads; ++head)
            f(batch * heads.heads + head, batch, head);
}

}  // namespace

void Device::do_head_products(const Tensor& products, const Heads& x, const Heads& y,
                              double factor) {
    const std::int64_t m = x.rows();
    const std::int64_t n = y.rows();
    with_real(products.dtype(), [&]<typename T>(T) {
        each_head(x, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            std::vector<T> left = packed<T>(x, x.offset(batch, head));
            for (T& value : left)
                value *= static_cast<T>(factor);
            const std::vector<T> right = packed<T>(y, y.offset(batch, head));
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
        each_head(y, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            const std::vector<T> values = packed<T>(y, y.offset(batch, head));
            multiply_matrices<T>({sums.data(),
                                  weights.data<T>() + index * m * n,
                                  values.data(),
                                  m,
                                  n,
                                  width,
                                  {.transpose_a = options.transpose}});
            T* into = destination.tensor.data<T>() + destination.offset(batch, head);
            for (std::int64_t row = 0; row < m; ++row) {
                for (std::int64_t column = 0; column < width; ++column) {
                    T& element = into[row * destination.pitch() + column];
                    const T sum =
                        factor * sums[static_cast<std::size_t>(row * width + column)];
                    element = accumulate ? element + sum : sum;
                }
            }
        });
    });
}

}  // namespace lockstep::sim

#include "gpu/device.hpp"
#include "gpu/kernels/attention.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

namespace {

static_assert(Device::kMostHeadWidth <= kMostAttentionWidth);

/// T is const where the heads are only read.
template <typename T>
HeadRows<T> rows_of(const Heads& heads) {
    return {heads.tensor.data<T>() + heads.first, heads.rows(), heads.pitch(),
            heads.columns()};
}

AttentionShape shape_of(const Heads& heads, std::int64_t group = 1) {
    return {heads.batches(), heads.heads, group, static_cast<int>(heads.width)};
}

/// A tensor (m, b, a width) whose columns are all heads', as those of `queries`.
Heads whole(const Tensor& tensor, const Heads& queries) {
    return {tensor, queries.heads, queries.width, 0};
}

template <typename T>
AttentionOperands<T> operands(const AttentionHeads& heads,
                              const AttentionOptions& options) {
    return {shape_of(heads.queries, heads.group()), rows_of<const T>(heads.queries),
            rows_of<const T>(heads.keys), rows_of<const T>(heads.values), options};
}

template <typename T>
OnlineRows<T> rows_of(const OnlineAttention& state, const Heads& queries) {
    return {rows_of<T>(whole(state.y, queries)), state.maximum.data<T>(),
            state.sum.data<T>()};
}

}  // namespace

void Device::do_head_row_products(const Tensor& products, const Heads& x,
                                  const Heads& y) {
    with_real(products.dtype(), [&]<typename T>(T) {
        launch_head_row_products(stream_.get(), products.data<T>(), rows_of<const T>(x),
                                 rows_of<const T>(y), shape_of(x));
    });
}

void Device::do_attend(const OnlineAttention& state, const AttentionHeads& heads,
                       const AttentionOptions& options) {
    with_real(state.y.dtype(), [&]<typename T>(T) {
        launch_attend(stream_.get(), rows_of<T>(state, heads.queries),
                      operands<T>(heads, options));
    });
}

void Device::do_finish_attention(const Tensor& log_sum_exp,
                                 const OnlineAttention& state) {
    const std::int64_t heads = log_sum_exp.shape()[1];
    const Heads y{state.y, heads, state.y.shape()[2] / heads, 0};
    with_real(state.y.dtype(), [&]<typename T>(T) {
        launch_finish_attention(stream_.get(), rows_of<T>(state, y), shape_of(y));
    });
}

void Device::do_attend_backward(const AttentionHeads& gradients,
                                const AttentionHeads& heads,
                                const AttentionBackward& backward,
                                const AttentionOptions& options) {
    with_real(backward.dy.dtype(), [&]<typename T>(T) {
        launch_attend_backward(
            stream_.get(),
            {rows_of<T>(gradients.queries), rows_of<T>(gradients.keys),
             rows_of<T>(gradients.values)},
            operands<T>(heads, options),
            {rows_of<const T>(whole(backward.dy, heads.queries)),
             backward.log_sum_exp.data<const T>(), backward.dy_y.data<const T>()});
    });
}

}  // namespace lockstep::gpu

#include <algorithm>
#include <vector>

#include "gpu/device.hpp"
#include "gpu/kernels/attention.hpp"
#include "gpu/kernels/paged_attention.hpp"
#include "gpu/kernels/rotary.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

namespace {

// In each row the heads of a batch are next to each other, `width` elements apart. So one
// call of cuBLAS multiplies all heads of a batch. If one operand has `a` heads and the
// other only `g` heads, head h of the first meets head h / (a/g) of the second. The heads
// then form g groups of a/g members. Each call multiplies the i-th members of all groups:
// there are a/g calls of g products.

/// An operand's heads for one call: product i uses the head at data + i * step.
template <typename T>
struct Stepped {
    T* data;
    std::int64_t step;
};

/// Returns the `member`-th head of each of `groups` groups. If there are as many heads as
/// groups, each group has only one head.
template <typename T>
Stepped<T> stepped(const Heads& heads, std::int64_t groups, std::int64_t batch,
                   std::int64_t member) {
    const std::int64_t group = heads.heads / groups;
    return {heads.tensor.data<T>() + heads.offset(batch, group == 1 ? 0 : member),
            group * heads.width};
}

/// Calls call(batch, member) for every product of groups.
template <typename Call>
void each_call(std::int64_t batches, std::int64_t group, Call&& call) {
    for (std::int64_t batch = 0; batch < batches; ++batch)
        for (std::int64_t member = 0; member < group; ++member)
            call(batch, member);
}

}  // namespace

template <>
void Device::compute(const ops::HeadProducts& op) {
    const std::int64_t m = op.x.rows();
    const std::int64_t n = op.y.rows();
    const std::int64_t group = op.x.heads / op.y.heads;
    with_floating(op.products.dtype(), [&]<typename T>(T) {
        each_call(op.x.batches(), group, [&](std::int64_t batch, std::int64_t member) {
            const auto a = stepped<const T>(op.x, op.y.heads, batch, member);
            const auto b = stepped<const T>(op.y, op.y.heads, batch, 0);
            blas().multiply(Blas::Products<T>{
                .count = op.y.heads,
                .m = m,
                .n = n,
                .k = op.x.width,
                .c = op.products.data<T>() + (batch * op.x.heads + member) * m * n,
                .c_pitch = n,
                .c_step = group * m * n,
                .a = {a.data, op.x.pitch(), false},
                .a_step = a.step,
                .b = {b.data, op.y.pitch(), true},
                .b_step = b.step,
                .factor = op.factor,
                .accumulate = false,
            });
        });
    });
}

void Device::sum_heads(const Heads& destination, const Tensor& weights, const Heads& y,
                       const HeadSumOptions& options, bool accumulate) {
    const std::int64_t m = destination.rows();
    const std::int64_t n = y.rows();
    const std::int64_t heads = std::max(destination.heads, y.heads);
    const std::int64_t groups = std::min(destination.heads, y.heads);
    const std::int64_t group = heads / groups;
    const bool shared = destination.heads < heads;
    with_floating(weights.dtype(), [&]<typename T>(T) {
        each_call(y.batches(), group, [&](std::int64_t batch, std::int64_t member) {
            const auto c = stepped<T>(destination, groups, batch, member);
            const auto b = stepped<const T>(y, groups, batch, member);
            blas().multiply(Blas::Products<T>{
                .count = groups,
                .m = m,
                .n = y.width,
                .k = n,
                .c = c.data,
                .c_pitch = destination.pitch(),
                .c_step = c.step,
                .a = {weights.data<T>() + (batch * heads + member) * m * n,
                      options.transpose ? m : n, options.transpose},
                .a_step = group * m * n,
                .b = {b.data, y.pitch(), false},
                .b_step = b.step,
                .factor = options.factor,
                // A group's members add to the head that they share.
                .accumulate = accumulate || (shared && member > 0),
            });
        });
    });
}

template <>
void Device::compute(const ops::HeadSums& op) {
    sum_heads(op.destination(), op.weights, op.y, {}, /*accumulate=*/false);
}

template <>
void Device::compute(const ops::AddHeadSums& op) {
    sum_heads(op.destination, op.weights, op.y, op.options, /*accumulate=*/true);
}

namespace {

static_assert(Device::kMostHeadWidth <= kMostAttentionWidth);

HeadRows rows_of(const Heads& heads) {
    return {heads.tensor, heads.first, heads.rows(), heads.pitch(), heads.columns()};
}

AttentionShape shape_of(const Heads& heads, std::int64_t group = 1) {
    return {heads.batches(), heads.heads, group, static_cast<int>(heads.width)};
}

/// Returns the heads of a tensor (m, b, a width) that has as many heads as `queries`, and
/// no other columns.
Heads whole(const Tensor& tensor, const Heads& queries) {
    return {tensor, queries.heads, queries.width, 0};
}

AttentionOperands operands(const AttentionHeads& heads, const AttentionOptions& options) {
    return {shape_of(heads.queries, heads.group()), rows_of(heads.queries),
            rows_of(heads.keys), rows_of(heads.values), options};
}

OnlineRows rows_of(const OnlineAttention& state, const Heads& queries) {
    return {rows_of(whole(state.y, queries)), state.maximum, state.sum};
}

}  // namespace

template <>
void Device::compute(const ops::HeadRowProducts& op) {
    launch_head_row_products(stream_.get(), op.products, rows_of(op.x), rows_of(op.y),
                             shape_of(op.x));
}

template <>
void Device::compute(const ops::Rotate& op) {
    launch_rotate(stream_.get(), rows_of(op.destination), rows_of(op.source),
                  shape_of(op.source), op.positions, op.options,
                  op.places ? op.places.data<const std::int32_t>() : nullptr);
}

template <>
void Device::compute(const ops::Attend& op) {
    launch_attend(stream_.get(), rows_of(op.state, op.heads.queries),
                  operands(op.heads, op.options));
}

template <>
void Device::compute(const ops::FinishAttention& op) {
    const Heads y = op.y();
    launch_finish_attention(stream_.get(), rows_of(op.state, y), shape_of(y));
}

namespace {

static_assert(ops::AttendPages::kMostWidth <= kMostPagedWidth &&
              ops::AttendPages::kMostTurned <= kMostTurnedWidth);

/// Returns a pair for each row (its token and the index of its first page), then the
/// pages of all sequences.
HostTensor page_table(const PagedTokens& tokens) {
    std::vector<std::int32_t> rows, pages;
    const auto begin_of = [&] { return static_cast<std::int32_t>(pages.size()); };
    for (const PagedSequence& sequence : tokens.sequences) {
        for (std::int64_t i = 0; i < sequence.count; ++i) {
            rows.push_back(static_cast<std::int32_t>(sequence.first + i));
            rows.push_back(begin_of());
        }
        pages.insert(pages.end(), sequence.pages.begin(), sequence.pages.end());
    }
    rows.insert(rows.end(), pages.begin(), pages.end());
    const auto count = static_cast<std::int64_t>(rows.size());
    return HostTensor::of<std::int32_t>({count}, rows);
}

PagedRows on_gpu(const Tensor& table, const PagedTokens& tokens, std::int64_t of_page) {
    const std::int64_t rows = tokens.rows();
    const auto* begin = table.data<const std::int32_t>();
    return {begin, begin + 2 * rows, rows, of_page};
}

}  // namespace

const Tensor& Device::paged(const PagedTokensRef& tokens) {
    if (page_table_ && paged_tokens_ == *tokens) return page_table_;
    const HostTensor table = page_table(*tokens);
    page_table_ = scratch(table.shape(), DType::i32);
    do_upload(page_table_, table);
    paged_tokens_ = *tokens;
    return page_table_;
}

template <>
void Device::compute(const ops::HeadMatmul& op) {
    // The rows of all batches follow each other.
    const auto multiply = [&](const Tensor& y, const Tensor& x) {
        with_floating(y.dtype(), [&]<typename T>(T) {
            const std::int64_t n = op.n(), width = op.x.width;
            blas().multiply(Blas::Products<T>{
                .count = op.x.heads,
                .m = x.shape().matrix_rows(),
                .n = n,
                .k = width,
                .c = y.data<T>(),
                .c_pitch = op.x.heads * n,
                .c_step = n,
                .a = {x.data<const T>() + op.x.first, op.x.columns(), false},
                .a_step = width,
                .b = {op.matrices.data<const T>(), op.matrices.shape().columns(),
                      op.options.transpose_b},
                .b_step = width * n,
                .factor = 1,
                .accumulate = false,
            });
        });
    };
    if (op.options.row_by_row)
        each_tile(op.y, op.x.tensor, /*accumulate=*/false, multiply);
    else
        multiply(op.y, op.x.tensor);
}

template <>
void Device::compute(const ops::StorePages& op) {
    launch_store_pages(stream_.get(), op.pages, op.source,
                       on_gpu(paged(op.tokens), *op.tokens, op.pages.shape()[1]),
                       op.columns(), op.source.shape().columns(), op.from);
}

template <>
void Device::compute(const ops::AttendPages& op) {
    const Heads y{op.y, op.queries.heads, op.values.width, 0};
    launch_attend_pages(
        stream_.get(),
        {rows_of(y), rows_of(op.queries), rows_of(op.keys), rows_of(op.values),
         op.queries.batches(), op.queries.heads, op.queries.heads / op.keys.heads,
         static_cast<int>(op.keys.width), static_cast<int>(op.values.width), op.factor,
         op.has_turned() ? rows_of(op.turned_queries) : HeadRows{},
         op.has_turned() ? rows_of(op.turned_keys) : HeadRows{},
         static_cast<int>(op.turned_queries.width)},
        on_gpu(paged(op.tokens), *op.tokens, op.keys.batches()));
}

template <>
void Device::compute(const ops::AttendBackward& op) {
    const auto& [dq, dk, dv] = op.gradients;
    const auto& [dy, log_sum_exp, dy_y] = op.backward;
    launch_attend_backward(stream_.get(), {rows_of(dq), rows_of(dk), rows_of(dv)},
                           operands(op.heads, op.options),
                           {rows_of(whole(dy, op.heads.queries)), log_sum_exp, dy_y});
}

}  // namespace lockstep::gpu

#include <limits>

#include <fmt/format.h>

#include "src/device/check_heads.hpp"
#include "src/device/flops.hpp"

namespace lockstep {

namespace {

void check_width(const Check& check, const Heads& queries) {
    check.that(queries.width <= Device::kMostHeadWidth, [&] {
        return fmt::format("heads of width {}; up to {} are expected", queries.width,
                           Device::kMostHeadWidth);
    });
}

/// Queries, keys and values that belong together.
void check_attention(const Check& check, const AttentionHeads& heads,
                     const AttentionOptions& options) {
    check_heads(check, "queries", heads.queries);
    check_heads(check, "keys", heads.keys);
    check_heads(check, "values", heads.values);
    check_grouped(check, "keys", heads.keys, "queries", heads.queries);
    check_grouped(check, "values", heads.values, "keys", heads.keys);
    check.that(heads.values.rows() == heads.keys.rows() &&
                   heads.values.heads == heads.keys.heads,
               [&] {
                   return fmt::format(
                       "values have {} rows of {} heads, but keys have {} of {}",
                       heads.values.rows(), heads.values.heads, heads.keys.rows(),
                       heads.keys.heads);
               });
    check_width(check, heads.queries);
    if (!options.causal) return;
    check_tokens(check, "queries", options.queries, heads.queries.rows());
    check_tokens(check, "keys", options.keys, heads.keys.rows());
}

/// As many rows, batches, heads and columns a head, of one type.
void check_alike(const Check& check, const char* name, const Heads& heads,
                 const char* other_name, const Heads& other) {
    check_heads(check, name, heads);
    check.dtype(name, heads.tensor, other.tensor.dtype());
    check.that(heads.rows() == other.rows() && heads.batches() == other.batches() &&
                   heads.heads == other.heads && heads.width == other.width,
               [&] {
                   return fmt::format(
                       "{} has {} rows, {} batches and {} heads of width {}, but {} has "
                       "{}, {} and {} of width {}",
                       name, heads.rows(), heads.batches(), heads.heads, heads.width,
                       other_name, other.rows(), other.batches(), other.heads,
                       other.width);
               });
}

/// Apart from all that backward reads.
void check_gradient_apart(const Check& check, const char* name, const Heads& gradient,
                          const AttentionHeads& heads,
                          const AttentionBackward& backward) {
    const Tensor& written = gradient.tensor;
    check.apart(name, written, "queries", heads.queries.tensor);
    check.apart(name, written, "keys", heads.keys.tensor);
    check.apart(name, written, "values", heads.values.tensor);
    check.apart(name, written, "dy", backward.dy);
    check.apart(name, written, "log_sum_exp", backward.log_sum_exp);
    check.apart(name, written, "dy_y", backward.dy_y);
}

/// A number a row of each head.
Shape shape_of_rows(const Heads& heads) {
    return {heads.batches(), heads.heads, heads.rows()};
}

void check_rows(const Check& check, const char* name, const Tensor& numbers,
                const Heads& queries) {
    const Shape expected = shape_of_rows(queries);
    check.dtype(name, numbers, queries.tensor.dtype());
    check.that(numbers.shape() == expected, [&] {
        return fmt::format("{} has shape {}; {} is expected", name,
                           numbers.shape().text(), expected.text());
    });
}

/// (m, b, a width) for queries that may lie among other columns.
void check_result(const Check& check, const char* name, const Tensor& tensor,
                  const Heads& queries) {
    const Shape expected{queries.rows(), queries.batches(),
                         queries.heads * queries.width};
    check.dtype(name, tensor, queries.tensor.dtype());
    check.that(tensor.shape() == expected, [&] {
        return fmt::format("{} has shape {}; {} is expected", name, tensor.shape().text(),
                           expected.text());
    });
}

/// The state's tensors share no memory.
void check_state_apart(const Check& check, const OnlineAttention& state) {
    check.apart("y", state.y, "maximum", state.maximum);
    check.apart("y", state.y, "sum", state.sum);
    check.apart("maximum", state.maximum, "sum", state.sum);
}

/// Pairs of a query and a key that it sees, of all heads.
std::int64_t pairs_of(const AttentionHeads& heads, const AttentionOptions& options) {
    // Of nothing, extents may be vast.
    if (heads.queries.tensor.elements() == 0 || heads.keys.tensor.elements() == 0)
        return 0;
    const std::int64_t m = heads.queries.rows(), n = heads.keys.rows();
    const std::int64_t of_head =
        options.causal ? causal_pairs(options.queries, m, options.keys, n) : m * n;
    return of_head * heads.queries.batches() * heads.queries.heads;
}

}  // namespace

OnlineAttention Device::begin_attention(const Heads& queries, SourceLine at) {
    const Check check(*this, "begin_attention", at);
    check_heads(check, "queries", queries);
    check_width(check, queries);
    const DType dtype = queries.tensor.dtype();
    const Shape rows = shape_of_rows(queries);
    const OnlineAttention state{
        zeros({queries.rows(), queries.batches(), queries.heads * queries.width}, dtype,
              at),
        empty(rows, dtype, at), zeros(rows, dtype, at)};
    fill(state.maximum, -std::numeric_limits<double>::infinity(), at);
    return state;
}

void Device::attend(const OnlineAttention& state, const AttentionHeads& heads,
                    const AttentionOptions& options, SourceLine at) {
    const Check check(*this, "attend", at);
    check_attention(check, heads, options);
    check_result(check, "y", state.y, heads.queries);
    check_rows(check, "maximum", state.maximum, heads.queries);
    check_rows(check, "sum", state.sum, heads.queries);
    check_state_apart(check, state);
    for (const Tensor* written : {&state.y, &state.maximum, &state.sum}) {
        check.apart("the state", *written, "queries", heads.queries.tensor);
        check.apart("the state", *written, "keys", heads.keys.tensor);
        check.apart("the state", *written, "values", heads.values.tensor);
    }
    const std::int64_t pairs = pairs_of(heads, options);
    if (pairs == 0) return;
    run({"attend", at, pairs * (4 * heads.queries.width + flops::kAttend),
         bytes_of_view(heads.queries) + bytes_of_view(heads.keys) +
             bytes_of_view(heads.values) +
             2 * (state.y.bytes() + state.maximum.bytes() + state.sum.bytes())},
        {&heads.queries.tensor, &heads.keys.tensor, &heads.values.tensor, &state.y,
         &state.maximum, &state.sum},
        {&state.y, &state.maximum, &state.sum},
        [&] { do_attend(state, heads, options); });
}

Tensor Device::finish_attention(const OnlineAttention& state, SourceLine at) {
    const Check check(*this, "finish_attention", at);
    check.real("y", state.y);
    const Shape& shape = state.y.shape();
    const Shape& rows = state.maximum.shape();
    check.that(shape.dimensions() == 3 && rows.dimensions() == 3 && rows[0] == shape[1] &&
                   rows[2] == shape[0] && rows[1] > 0 && shape[2] % rows[1] == 0,
               [&] {
                   return fmt::format(
                       "y has shape {} and maximum {}; (queries, batches, columns) and "
                       "(batches, heads, queries) are expected",
                       shape.text(), rows.text());
               });
    check.dtype("maximum", state.maximum, state.y.dtype());
    check.like("sum", state.sum, "maximum", state.maximum);
    check_state_apart(check, state);
    run({"finish_attention", at,
         state.y.elements() + flops::kLogSumExp * state.sum.elements()},
        {&state.y, &state.maximum, &state.sum}, {&state.y, &state.maximum},
        [&] { do_finish_attention(state.maximum, state); });
    return state.maximum;
}

Tensor Device::head_row_products(const Heads& x, const Heads& y, SourceLine at) {
    const Check check(*this, "head_row_products", at);
    check_heads(check, "x", x);
    check_heads(check, "y", y);
    check_alike(check, "y", y, "x", x);
    Tensor products = empty(shape_of_rows(x), x.tensor.dtype(), at);
    run({"head_row_products", at, 2 * products.elements() * x.width,
         bytes_of_view(x) + bytes_of_view(y) + products.bytes(),
         Derivation::linear_in(0, 1)},
        {&x.tensor, &y.tensor}, {&products},
        [&] { do_head_row_products(products, x, y); });
    return products;
}

void Device::attend_backward(const AttentionHeads& gradients, const AttentionHeads& heads,
                             const AttentionBackward& backward,
                             const AttentionOptions& options, SourceLine at) {
    const Check check(*this, "attend_backward", at);
    check_attention(check, heads, options);
    check_alike(check, "dq", gradients.queries, "queries", heads.queries);
    check_alike(check, "dk", gradients.keys, "keys", heads.keys);
    check_alike(check, "dv", gradients.values, "values", heads.values);
    check_result(check, "dy", backward.dy, heads.queries);
    check_rows(check, "log_sum_exp", backward.log_sum_exp, heads.queries);
    check_rows(check, "dy_y", backward.dy_y, heads.queries);
    check_gradient_apart(check, "dq", gradients.queries, heads, backward);
    check_gradient_apart(check, "dk", gradients.keys, heads, backward);
    check_gradient_apart(check, "dv", gradients.values, heads, backward);
    const Tensor *dq = &gradients.queries.tensor, *dk = &gradients.keys.tensor,
                 *dv = &gradients.values.tensor;
    const std::int64_t pairs = pairs_of(heads, options);
    if (pairs == 0) return;
    const std::int64_t views = bytes_of_view(heads.queries) + bytes_of_view(heads.keys) +
                               bytes_of_view(heads.values);
    run({"attend_backward", at,
         pairs * (10 * heads.queries.width + flops::kAttendBackward),
         3 * views + backward.dy.bytes() + backward.log_sum_exp.bytes() +
             backward.dy_y.bytes(),
         Derivation::adding({})},
        {&heads.queries.tensor, &heads.keys.tensor, &heads.values.tensor, &backward.dy,
         &backward.log_sum_exp, &backward.dy_y, dq, dk, dv},
        {dq, dk, dv}, [&] { do_attend_backward(gradients, heads, backward, options); });
}

}  // namespace lockstep

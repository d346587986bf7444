#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "src/device/operation.hpp"
#include "src/device/paged_tokens.hpp"
#include "src/device/token_rows.hpp"

namespace lockstep::ops {

// Attention, head by head: with the weights of all queries and keys in memory; without
// them, some keys at a time; and over keys on pages. Also rotary positions, which turn
// queries and keys before attention.

/// The widest head that attention without weights in memory accepts.
inline constexpr std::int64_t kMostHeadWidth = 256;

/// Checks weights of shape (batches, heads, m, n).
inline void check_weights(const OperandCheck& check, const Tensor& weights,
                          const Heads& y, std::int64_t heads, std::int64_t rows,
                          std::int64_t columns) {
    check.dtype("weights", weights, y.tensor.dtype());
    const Shape expected{y.batches(), heads, rows, columns};
    check.that(weights.shape() == expected, "weights have shape {}; {} is expected",
               weights.shape(), expected);
}

/// products (b, a, m, n) = factor * x y^T of each head.
struct HeadProducts {
    static constexpr const char* kName = "head_products";
    Tensor products;
    Heads x;
    Heads y;
    double factor = 1;

    void check(const OperandCheck& check) const {
        check.heads("x", x);
        check.heads("y", y);
        check.grouped("y", y, "x", x);
    }
    void make(const auto& make) {
        make(products, Shape{x.batches(), x.heads, x.rows(), y.rows()}, x.tensor.dtype());
    }
    OperandList operands() const {
        return {reads("x", x), reads("y", y), makes("products", products)};
    }
    std::int64_t flops() const { return 2 * products.elements() * x.width; }
    std::int64_t least_extent() const { return std::min({x.rows(), y.rows(), x.width}); }
    Derivation derivation() const { return Derivation::linear_in(0, 1); }
};

/// sums (m, b, a width) = weights (m, n) times y (n, width) of each head.
struct HeadSums {
    static constexpr const char* kName = "head_sums";
    Tensor sums;
    Tensor weights;
    Heads y;

    /// Returns the result as heads.
    Heads destination() const { return {sums, weights.shape()[1], y.width, 0}; }

    void check(const OperandCheck& check) const {
        check.heads("y", y);
        const Shape& shape = weights.shape();
        check.that(shape.dimensions() == 4,
                   "weights have shape {}; (batches, heads, queries, keys) is expected",
                   shape);
        check.group("y", y.heads, "weights", shape[1]);
        check.that(shape[1] <= kMostElements / y.width,
                   "{} heads of width {} have more columns than there can be", shape[1],
                   y.width);
        check_weights(check, weights, y, shape[1], shape[2], y.rows());
    }
    void make(const auto& make) {
        const Shape& shape = weights.shape();
        make(sums, Shape{shape[2], y.batches(), shape[1] * y.width}, weights.dtype());
    }
    OperandList operands() const {
        return {reads("weights", weights), reads("y", y), makes("sums", sums)};
    }
    std::int64_t flops() const { return 2 * weights.elements() * y.width; }
    std::int64_t least_extent() const {
        return std::min({weights.shape()[2], weights.shape()[3], y.width});
    }
    Derivation derivation() const { return Derivation::linear_in(0, 1); }
    void when_empty(const auto& fill) const { fill(sums, 0); }
};

/// destination += factor * op(weights) y of each head.
struct AddHeadSums {
    static constexpr const char* kName = "add_head_sums";
    Heads destination;
    Tensor weights;
    Heads y;
    HeadSumOptions options;

    void check(const OperandCheck& check) const {
        check.heads("y", y);
        check.heads("destination", destination);
        if (destination.heads < y.heads)
            check.grouped("destination", destination, "y", y);
        else
            check.grouped("y", y, "destination", destination);
        std::int64_t rows = destination.rows(), columns = y.rows();
        if (options.transpose) std::swap(rows, columns);
        check_weights(check, weights, y, std::max(destination.heads, y.heads), rows,
                      columns);
    }
    OperandList operands() const {
        return {reads("weights", weights), reads("y", y),
                adds_to("destination", destination)};
    }
    std::int64_t flops() const { return 2 * weights.elements() * y.width; }
    std::int64_t least_extent() const {
        return std::min({weights.shape()[2], weights.shape()[3], y.width});
    }
    Derivation derivation() const {
        return Derivation::adding(Derivation::linear_in(0, 1), options.factor);
    }
};

/// Returns the shape of one number for each row of each head: (b, a, m).
inline Shape shape_of_rows(const Heads& heads) {
    return {heads.batches(), heads.heads, heads.rows()};
}
/// Returns the shape of attention's result: (m, b, a width). The queries' tensor may have
/// other columns, too.
inline Shape shape_of_result(const Heads& queries) {
    return {queries.rows(), queries.batches(), queries.heads * queries.width};
}

inline void check_width(const OperandCheck& check, const Heads& queries) {
    check.that(queries.width <= kMostHeadWidth,
               "heads of width {}; up to {} are expected", queries.width,
               std::int64_t{kMostHeadWidth});
}

/// Checks that queries, keys and values fit together.
inline void check_attention(const OperandCheck& check, const AttentionHeads& heads,
                            const AttentionOptions& options) {
    check.heads("queries", heads.queries);
    check.heads("keys", heads.keys);
    check.heads("values", heads.values);
    check.grouped("keys", heads.keys, "queries", heads.queries);
    check.grouped("values", heads.values, "keys", heads.keys);
    check.that(heads.values.rows() == heads.keys.rows() &&
                   heads.values.heads == heads.keys.heads,
               "values have {} rows of {} heads, but keys have {} of {}",
               heads.values.rows(), heads.values.heads, heads.keys.rows(),
               heads.keys.heads);
    check_width(check, heads.queries);
    if (!options.causal) return;
    check.tokens("queries", options.queries, heads.queries.rows());
    check.tokens("keys", options.keys, heads.keys.rows());
}

/// Returns the number of pairs of a query and a key that the query sees, over all heads.
inline std::int64_t pairs_of(const AttentionHeads& heads,
                             const AttentionOptions& options) {
    // The extents of a tensor without elements may be huge.
    if (heads.queries.tensor.elements() == 0 || heads.keys.tensor.elements() == 0)
        return 0;
    const std::int64_t m = heads.queries.rows(), n = heads.keys.rows();
    const std::int64_t of_head =
        options.causal ? causal_pairs(options.queries, m, options.keys, n) : m * n;
    return of_head * heads.queries.batches() * heads.queries.heads;
}

/// Adds keys and their values to the state, by an online softmax.
struct Attend {
    static constexpr const char* kName = "attend";
    /// The cost of the softmax for a pair of a query and a key, without the products:
    /// scale; maximum, subtract, exp, sum.
    static constexpr std::int64_t kFlopsOfPair = kTranscendental + 4;
    static constexpr bool kIdleWithoutFlops = true;
    OnlineAttention state;
    AttentionHeads heads;
    AttentionOptions options;

    void check(const OperandCheck& check) const {
        check_attention(check, heads, options);
        const DType dtype = computed_in(heads.queries.tensor.dtype());
        check.shape("y", state.y, shape_of_result(heads.queries), dtype);
        check.shape("maximum", state.maximum, shape_of_rows(heads.queries), dtype);
        check.shape("sum", state.sum, shape_of_rows(heads.queries), dtype);
        for (const Tensor* written : {&state.y, &state.maximum, &state.sum})
            for (const auto& [name, read] :
                 {std::pair{"queries", &heads.queries}, std::pair{"keys", &heads.keys},
                  std::pair{"values", &heads.values}})
                check.apart("the state", *written, name, read->tensor);
    }
    OperandList operands() const {
        return {reads("queries", heads.queries),   reads("keys", heads.keys),
                reads("values", heads.values),     updates("y", state.y),
                updates("maximum", state.maximum), updates("sum", state.sum)};
    }
    std::int64_t flops() const {
        return pairs_of(heads, options) * (4 * heads.queries.width + kFlopsOfPair);
    }
    std::int64_t least_extent() const { return lockstep::least_extent(heads); }
    /// Returns the heads' type: the state is f32 if the heads are bf16.
    DType multiplied_in() const { return heads.queries.tensor.dtype(); }
    Derivation derivation() const { return {}; }
};

/// Turns the state's y into the mean of the values, and `maximum` into the logarithm of
/// the sum of all exponentials.
struct FinishAttention {
    static constexpr const char* kName = "finish_attention";
    /// Log, and add the maximum.
    static constexpr std::int64_t kFlopsOfRow = kTranscendental + 1;
    OnlineAttention state;

    /// Returns the state's y as heads.
    Heads y() const {
        const std::int64_t heads = state.maximum.shape()[1];
        return {state.y, heads, state.y.shape()[2] / heads, 0};
    }

    void check(const OperandCheck& check) const {
        check.real("y", state.y);
        const Shape& shape = state.y.shape();
        const Shape& rows = state.maximum.shape();
        check.that(shape.dimensions() == 3 && rows.dimensions() == 3 &&
                       rows[0] == shape[1] && rows[2] == shape[0] && rows[1] > 0 &&
                       shape[2] % rows[1] == 0,
                   "y has shape {} and maximum {}; (queries, batches, columns) and "
                   "(batches, heads, queries) are expected",
                   shape, rows);
        check.dtype("maximum", state.maximum, state.y.dtype());
        check.like("sum", state.sum, "maximum", state.maximum);
    }
    OperandList operands() const {
        return {updates("y", state.y), updates("maximum", state.maximum),
                reads("sum", state.sum)};
    }
    std::int64_t flops() const {
        return state.y.elements() + kFlopsOfRow * state.sum.elements();
    }
    Derivation derivation() const { return {}; }
};

/// products (b, a, m): the sum of x y over the width, for each row of each head.
struct HeadRowProducts {
    static constexpr const char* kName = "head_row_products";
    Tensor products;
    Heads x;
    Heads y;

    void check(const OperandCheck& check) const {
        check.heads("x", x);
        check.alike("y", y, "x", x);
    }
    void make(const auto& make) {
        make(products, shape_of_rows(x), computed_in(x.tensor.dtype()));
    }
    OperandList operands() const {
        return {reads("x", x), reads("y", y), makes("products", products)};
    }
    std::int64_t flops() const { return 2 * products.elements() * x.width; }
    Derivation derivation() const { return Derivation::linear_in(0, 1); }
};

/// Adds what keys and values contribute to the three gradients.
struct AttendBackward {
    static constexpr const char* kName = "attend_backward";
    /// Scale, subtract, exp; subtract, multiply, scale.
    static constexpr std::int64_t kFlopsOfPair = kTranscendental + 5;
    static constexpr bool kIdleWithoutFlops = true;
    /// The gradients may be columns of one tensor, since the operation adds to each.
    static constexpr bool kSumsMayOverlap = true;
    AttentionHeads gradients;
    AttentionHeads heads;
    AttentionBackward backward;
    AttentionOptions options;

    void check(const OperandCheck& check) const {
        check_attention(check, heads, options);
        check.alike("dq", gradients.queries, "queries", heads.queries);
        check.alike("dk", gradients.keys, "keys", heads.keys);
        check.alike("dv", gradients.values, "values", heads.values);
        const DType dtype = heads.queries.tensor.dtype();
        const Shape rows = shape_of_rows(heads.queries);
        check.shape("dy", backward.dy, shape_of_result(heads.queries), dtype);
        check.shape("log_sum_exp", backward.log_sum_exp, rows, computed_in(dtype));
        check.shape("dy_y", backward.dy_y, rows, computed_in(dtype));
    }
    OperandList operands() const {
        return {reads("queries", heads.queries),
                reads("keys", heads.keys),
                reads("values", heads.values),
                reads("dy", backward.dy),
                reads("log_sum_exp", backward.log_sum_exp),
                reads("dy_y", backward.dy_y),
                adds_to("dq", gradients.queries),
                adds_to("dk", gradients.keys),
                adds_to("dv", gradients.values)};
    }
    std::int64_t flops() const {
        return pairs_of(heads, options) * (10 * heads.queries.width + kFlopsOfPair);
    }
    std::int64_t least_extent() const { return lockstep::least_extent(heads); }
    Derivation derivation() const { return {}; }
};

/// destination = source, with each head turned pair by pair: columns j and j + width / 2
/// turn by the angle position * base^(-2 j / width). If `places` is given, row i of batch
/// b has the position places[i batches + b].
struct Rotate {
    static constexpr const char* kName = "rotate";
    static constexpr bool kInPlace = true;
    Heads destination;
    Heads source;
    TokenRows positions;
    RotaryOptions options;
    Tensor places;

    bool in_place() const { return destination.tensor.overlaps(source.tensor); }

    void check(const OperandCheck& check) const {
        check.heads("source", source);
        check.alike("destination", destination, "source", source);
        check.that(source.width % 2 == 0,
                   "heads of width {}; an even width is expected, since columns turn in "
                   "pairs",
                   source.width);
        check.that(!in_place() || destination.first == source.first,
                   "destination and source begin at columns {} and {} of one tensor; "
                   "they must be the same heads, or be in two tensors",
                   destination.first, source.first);
        check.that(options.base >= 1 && std::isfinite(options.base),
                   "base is {}; a finite number from 1 up is expected", options.base);
        if (places)
            check.count("positions", places, source.rows() * source.batches(),
                        DType::i32);
        else
            check.tokens("positions", positions, source.rows());
    }
    OperandList operands() const {
        return {reads("source", source),
                only_if(static_cast<bool>(places), reads("positions", places)),
                writes("destination", destination)};
    }
    /// Each element needs 3 flops; all heads share the cos and sin of a row's angles.
    std::int64_t flops() const {
        return (3 * source.heads + kTranscendental) * source.rows() * source.batches() *
               source.width;
    }
    Derivation derivation() const {
        const bool whole = destination.heads * destination.width == destination.columns();
        return whole || in_place() ? Derivation::linear_in(0)
                                   : Derivation::copying_part();
    }
};

/// Checks that the tokens have `rows` rows in all, and that each token has a place on
/// pages (pages, rows of a page, columns).
void check_paged(const OperandCheck& check, const PagedTokensRef& tokens,
                 std::int64_t rows, const Shape& pages);

/// Copies columns [from, from + columns of pages) of each row of source to the place of
/// the row's token on the pages.
struct StorePages {
    static constexpr const char* kName = "store_pages";
    Tensor pages;
    Tensor source;
    std::int64_t from = 0;
    PagedTokensRef tokens;

    std::int64_t columns() const { return pages.shape()[2]; }

    void check(const OperandCheck& check) const {
        check.real("source", source);
        check.dtype("pages", pages, source.dtype());
        check_page_shape(check, pages);
        check.that(from >= 0 && columns() <= source.shape().columns() - from,
                   "source has {} columns, but {} from column {} on are needed",
                   source.shape().columns(), columns(), from);
        check_paged(check, tokens, source.shape().matrix_rows(), pages.shape());
        check_apart(check);
    }
    OperandList operands() const {
        const std::int64_t bytes =
            source.shape().matrix_rows() * columns() * bytes_of(source.dtype());
        return {sized(bytes, reads("source", source)),
                sized(bytes, writes("pages", pages))};
    }
    std::int64_t flops() const { return 0; }
    Derivation derivation() const { return Derivation::copying_part(); }

    static void check_page_shape(const OperandCheck& check, const Tensor& pages) {
        const Shape& shape = pages.shape();
        check.that(shape.dimensions() == 3 && shape[1] > 0 && shape[2] > 0 &&
                       shape[0] <= kMostElements / shape[1],
                   "pages have shape {}; (pages, rows of a page, columns) is expected",
                   shape);
    }
    /// Calls visit(row, place) for each row, with its place among all pages' rows.
    template <typename Visit>
    void each_row(Visit&& visit) const {
        const std::int64_t of_page = pages.shape()[1];
        std::int64_t row = 0;
        for (const PagedSequence& sequence : tokens->sequences)
            for (std::int64_t i = 0; i < sequence.count; ++i, ++row) {
                const std::int64_t token = sequence.first + i;
                const auto page = static_cast<std::size_t>(token / of_page);
                visit(row, sequence.pages[page] * of_page + token % of_page);
            }
    }

  private:
    /// Refuses two rows with the same place, since the values of either row could remain.
    void check_apart(const OperandCheck& check) const;
};

/// y (m, b, a n): the columns of each head of x (m, b, a k) times the head's own matrix.
/// `matrices` has one matrix below the other: (a k, n), or transposed (a n, k).
struct HeadMatmul {
    static constexpr const char* kName = "head_matmul";
    Tensor y;
    Heads x;
    Tensor matrices;
    MatmulOptions options;

    std::int64_t n() const {
        const Shape& shape = matrices.shape();
        return options.transpose_b ? shape.matrix_rows() / x.heads : shape.columns();
    }
    /// Returns the result as heads.
    Heads destination() const { return {y, x.heads, n(), 0}; }

    void check(const OperandCheck& check) const {
        check.heads("x", x);
        check.dtype("matrices", matrices, x.tensor.dtype());
        check.that(!options.transpose_a && !options.accumulate,
                   "transpose_a and accumulate are not allowed");
        const Shape& shape = matrices.shape();
        const std::int64_t rows =
            options.transpose_b ? shape.columns() : shape.matrix_rows();
        const std::int64_t expected = options.transpose_b ? x.width : x.heads * x.width;
        check.that(shape.dimensions() == 2 && rows == expected &&
                       (!options.transpose_b || shape.matrix_rows() % x.heads == 0),
                   "matrices have shape {}{}, which does not fit {} heads of width {}",
                   shape, options.transpose_b ? ", transposed" : "", x.heads, x.width);
        check.that(n() == 0 || x.heads <= kMostElements / n(),
                   "{} heads of width {} have more columns than there can be", x.heads,
                   n());
    }
    void make(const auto& make) {
        make(y, Shape{x.rows(), x.batches(), x.heads * n()}, x.tensor.dtype());
    }
    OperandList operands() const {
        return {reads("x", x), reads("matrices", matrices), makes("y", y)};
    }
    std::int64_t flops() const { return 2 * y.elements() * x.width; }
    std::int64_t least_extent() const {
        return std::min({x.rows() * x.batches(), x.width, n()});
    }
    Derivation derivation() const { return Derivation::linear_in(0, 1); }
};

/// y (m, b, a value width): the attention of each row over the keys and values of its own
/// sequence, up to its own token. Keys and values are columns of pages. Scores may have a
/// second term, from queries and keys that turn with positions.
struct AttendPages {
    static constexpr const char* kName = "attend_pages";
    static constexpr std::int64_t kFlopsOfPair = Attend::kFlopsOfPair;
    /// The maximum number of columns of a head that a GPU's warp can hold.
    static constexpr std::int64_t kMostWidth = 1024;
    static constexpr std::int64_t kMostTurned = 128;
    Tensor y;
    Heads queries;
    Heads keys;
    Heads values;
    PagedTokensRef tokens;
    double factor = 1;
    Heads turned_queries;  ///< none if there is no second term
    Heads turned_keys;

    bool has_turned() const { return static_cast<bool>(turned_queries.tensor); }
    std::int64_t rows() const { return queries.rows() * queries.batches(); }

    void check(const OperandCheck& check) const {
        check.heads("queries", queries);
        check.heads("keys", keys);
        check.heads("values", values);
        check.dtype("keys", keys.tensor, queries.tensor.dtype());
        check.dtype("values", values.tensor, queries.tensor.dtype());
        StorePages::check_page_shape(check, keys.tensor);
        check.group("keys", keys.heads, "queries", queries.heads);
        check.that(queries.heads <= kMostElements / values.width,
                   "{} heads of width {} have more columns than there can be",
                   queries.heads, values.width);
        check.that(keys.width == queries.width,
                   "keys have heads of width {}, but queries of {}", keys.width,
                   queries.width);
        check.that(values.heads == keys.heads && values.rows() == keys.rows() &&
                       values.batches() == keys.batches(),
                   "values have {} heads on {} pages of {} rows, but keys have {} on {} "
                   "of {}",
                   values.heads, values.rows(), values.batches(), keys.heads, keys.rows(),
                   keys.batches());
        if (has_turned()) check_turned(check);
        check.that(keys.width <= kMostWidth && values.width <= kMostWidth,
                   "heads of width {} and {}; up to {} are expected", keys.width,
                   values.width, std::int64_t{kMostWidth});
        check_paged(check, tokens, rows(), keys.tensor.shape());
        const double products = static_cast<double>(rows()) *
                                static_cast<double>(keys.rows() * keys.batches()) *
                                static_cast<double>(queries.heads) * kMostWidth;
        check.that(products <= 0x1p58,
                   "{} rows of {} heads, and {} pages of {} rows: more products than can "
                   "be counted",
                   rows(), queries.heads, keys.rows(), keys.batches());
    }
    void make(const auto& make) {
        make(y, Shape{queries.rows(), queries.batches(), queries.heads * values.width},
             queries.tensor.dtype());
    }
    /// Each sequence's keys and values are read once.
    OperandList operands() const {
        const auto of_keys = [&](const Heads& heads) {
            return tokens->keys() * heads.heads * heads.width *
                   bytes_of(heads.tensor.dtype());
        };
        // If values are columns of the keys, as latent values are, they are read with the
        // keys.
        const bool same = values.tensor.overlaps(keys.tensor) &&
                          values.tensor.offset_bytes() == keys.tensor.offset_bytes() &&
                          values.first == keys.first && values.width <= keys.width;
        const bool turned = has_turned();
        const auto of_turned = [&](const char* name, const Heads& heads, auto&& bytes) {
            return only_if(turned,
                           sized(turned ? bytes(heads) : 0, reads(name, heads.tensor)));
        };
        return {reads("queries", queries),
                sized(of_keys(keys), reads("keys", keys)),
                sized(same ? 0 : of_keys(values), reads("values", values)),
                of_turned("turned queries", turned_queries, bytes_of_view),
                of_turned("turned keys", turned_keys, of_keys),
                makes("y", y)};
    }
    std::int64_t flops() const {
        const std::int64_t widths =
            queries.width + values.width + (has_turned() ? turned_queries.width : 0);
        return tokens->pairs() * queries.heads * (2 * widths + kFlopsOfPair);
    }
    Derivation derivation() const { return {}; }

  private:
    void check_turned(const OperandCheck& check) const {
        check.heads("turned queries", turned_queries);
        check.heads("turned keys", turned_keys);
        check.dtype("turned queries", turned_queries.tensor, queries.tensor.dtype());
        check.dtype("turned keys", turned_keys.tensor, queries.tensor.dtype());
        const auto fits = [](const Heads& turned, const Heads& plain) {
            return turned.rows() == plain.rows() && turned.batches() == plain.batches() &&
                   turned.heads == plain.heads;
        };
        check.that(fits(turned_queries, queries) && fits(turned_keys, keys) &&
                       turned_queries.width == turned_keys.width &&
                       turned_keys.width <= kMostTurned,
                   "turned queries have {} heads of width {} and turned keys {} of width "
                   "{}, which do not fit the other queries and keys with {} and {} heads",
                   turned_queries.heads, turned_queries.width, turned_keys.heads,
                   turned_keys.width, queries.heads, keys.heads);
    }
};

using AttentionOperations =
    OperationList<HeadProducts, HeadSums, AddHeadSums, Attend, FinishAttention,
                  HeadRowProducts, AttendBackward, Rotate, HeadMatmul, StorePages,
                  AttendPages>;

}  // namespace lockstep::ops

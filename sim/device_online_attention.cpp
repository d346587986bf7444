#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "sim/device.hpp"
#include "sim/heads.hpp"
#include "sim/lanes.hpp"
#include "sim/matmul.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::sim {

namespace {

// As a GPU does it in shared memory: tiles of queries by tiles of keys, so that no more
// scores than a tile's are ever held.
constexpr std::int64_t kTileQueries = 64;
constexpr std::int64_t kTileKeys = 256;

template <typename T>
constexpr T kNone = -std::numeric_limits<T>::infinity();

/// Rows [first, first + count) of a tensor.
struct Stretch {
    std::int64_t first, count;
    std::size_t size(std::int64_t width) const {
        return static_cast<std::size_t>(count * width);
    }
    TokenRows of(TokenRows tokens) const {
        tokens.first += first;
        return tokens;
    }
};

struct Tile {
    Stretch queries, keys;
    bool masked;  ///< some query does not see some key
};

/// f(tile) for every tile in which a query sees a key, one stretch of queries after the
/// other.
template <typename F>
void each_tile(const AttentionHeads& heads, const AttentionOptions& options, F&& f) {
    const std::int64_t m = heads.queries.rows(), n = heads.keys.rows();
    for (std::int64_t i = 0; i < m; i += kTileQueries) {
        const Stretch queries{i, std::min(kTileQueries, m - i)};
        for (std::int64_t j = 0; j < n; j += kTileKeys) {
            const Stretch keys{j, std::min(kTileKeys, n - j)};
            const std::int64_t all = queries.count * keys.count;
            const std::int64_t seen =
                options.causal ? causal_pairs(queries.of(options.queries), queries.count,
                                              keys.of(options.keys), keys.count)
                               : all;
            if (seen > 0) f(Tile{queries, keys, seen < all});
        }
    }
}

/// Scores (queries, keys) of a tile; -infinity where a query does not see the key.
template <typename T>
void score(std::vector<T>& scores, const std::vector<T>& q, const std::vector<T>& k,
           const Tile& tile, std::int64_t width, const AttentionOptions& options) {
    const Stretch &queries = tile.queries, &keys = tile.keys;
    scores.resize(queries.size(keys.count));
    multiply_matrices<T>({scores.data(),
                          q.data(),
                          k.data(),
                          queries.count,
                          width,
                          keys.count,
                          {.transpose_b = true}});
    const auto factor = static_cast<T>(options.factor);
    for (T& value : scores)
        value *= factor;
    if (!tile.masked) return;
    std::vector<std::int64_t> tokens(keys.size(1));
    for (std::int64_t j = 0; j < keys.count; ++j)
        tokens[static_cast<std::size_t>(j)] = options.keys[keys.first + j];
    T* next = scores.data();
    for (std::int64_t i = 0; i < queries.count; ++i) {
        const std::int64_t last = options.queries[queries.first + i];
        for (const std::int64_t token : tokens) {
            if (token > last) *next = kNone<T>;
            ++next;
        }
    }
}

/// One row's scores become exp(score - maximum) with the maximum of all so far, and its
/// sums what they are relative to that.
template <typename T>
void take_in(T* scores, std::int64_t count, T& maximum, T& sum, T* y,
             std::int64_t width) {
    const T larger = std::max(maximum, largest<T>(scores, count));
    const T by = formulas::rescaling(maximum, larger);
    const T off = larger == kNone<T> ? T{0} : larger;
    map_lanes(
        count, scores, [off](const Lane<T>& a) { return exp_lane<T>(a - off); }, scores);
    const auto itself = [](const Lane<T>& a) -> const Lane<T>& { return a; };
    const T* exponentials = scores;
    sum = by * sum + static_cast<T>(sum_lanes(count, itself, exponentials));
    maximum = larger;
    for (std::int64_t column = 0; column < width; ++column)
        y[column] *= by;
}

/// Numbers of a head's rows.
template <typename T>
T* rows_of(const Tensor& numbers, const Heads& queries, std::int64_t index) {
    return numbers.data<T>() + index * queries.rows();
}

/// One head's backward, tile by tile.
template <typename T>
struct HeadBackward {
    T factor;
    const T* log_sum_exp;
    const T* dy_y;
    std::vector<T> p{};
    std::vector<T> ds{};

    /// p = exp(scores - log_sum_exp); ds = factor p (dp - dy_y), given dp.
    void weigh(const Stretch& queries, const Stretch& keys) {
        const T by = factor;
        for (std::int64_t i = 0; i < queries.count; ++i) {
            const T whole = log_sum_exp[queries.first + i];
            const T along = dy_y[queries.first + i];
            const T off = whole == kNone<T> ? T{0} : whole;
            T* weights = p.data() + i * keys.count;
            T* d_scores = ds.data() + i * keys.count;
            map_lanes(
                keys.count, weights,
                [off](const Lane<T>& a) { return exp_lane<T>(a - off); }, weights);
            map_lanes(
                keys.count, d_scores,
                [=](const Lane<T>& a, const Lane<T>& b) -> Lane<T> {
                    return by * a * (b - along);
                },
                weights, d_scores);
        }
    }
};

}  // namespace

void Device::do_head_row_products(const Tensor& products, const Heads& x,
                                  const Heads& y) {
    with_real(products.dtype(), [&]<typename T>(T) {
        const auto product = [](const Lane<T>& a, const Lane<T>& b) -> Lane<T> {
            return a * b;
        };
        each_head(x, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            const T* left = x.tensor.data<T>() + x.offset(batch, head);
            const T* right = y.tensor.data<T>() + y.offset(batch, head);
            for (std::int64_t row = 0; row < x.rows(); ++row)
                rows_of<T>(products, x, index)[row] = static_cast<T>(sum_lanes(
                    x.width, product, left + row * x.pitch(), right + row * y.pitch()));
        });
    });
}

void Device::do_attend(const OnlineAttention& state, const AttentionHeads& heads,
                       const AttentionOptions& options) {
    const std::int64_t width = heads.queries.width;
    const Heads y{state.y, heads.queries.heads, width, 0};
    with_real(state.y.dtype(), [&]<typename T>(T) {
        std::vector<T> scores, rows;
        each_head(y, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            const std::int64_t of = head / heads.group();
            T* maximum = rows_of<T>(state.maximum, y, index);
            T* sum = rows_of<T>(state.sum, y, index);
            each_tile(heads, options, [&](const Tile& tile) {
                const Stretch &queries = tile.queries, &keys = tile.keys;
                const auto q = packed<T>(heads.queries, heads.queries.offset(batch, head),
                                         queries.first, queries.count);
                const auto k = packed<T>(heads.keys, heads.keys.offset(batch, of),
                                         keys.first, keys.count);
                const auto v = packed<T>(heads.values, heads.values.offset(batch, of),
                                         keys.first, keys.count);
                score(scores, q, k, tile, width, options);
                for (std::int64_t i = 0; i < queries.count; ++i) {
                    const std::int64_t row = queries.first + i;
                    take_in(scores.data() + i * keys.count, keys.count, maximum[row],
                            sum[row],
                            y.tensor.data<T>() + y.offset(batch, head) + row * y.pitch(),
                            width);
                }
                rows.resize(queries.size(width));
                multiply_matrices<T>({rows.data(),
                                      scores.data(),
                                      v.data(),
                                      queries.count,
                                      keys.count,
                                      width,
                                      {}});
                add_packed(y, y.offset(batch, head), rows, T{1}, queries.first);
            });
        });
    });
}

void Device::do_finish_attention(const Tensor& log_sum_exp,
                                 const OnlineAttention& state) {
    const std::int64_t heads = state.maximum.shape()[1];
    const Heads y{state.y, heads, state.y.shape()[2] / heads, 0};
    with_real(state.y.dtype(), [&]<typename T>(T) {
        each_head(y, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            for (std::int64_t row = 0; row < y.rows(); ++row) {
                const T sum = rows_of<T>(state.sum, y, index)[row];
                const T maximum = rows_of<T>(state.maximum, y, index)[row];
                const T inverse = sum == 0 ? T{0} : 1 / sum;
                T* values = y.tensor.data<T>() + y.offset(batch, head) + row * y.pitch();
                for (std::int64_t column = 0; column < y.width; ++column)
                    values[column] *= inverse;
                rows_of<T>(log_sum_exp, y, index)[row] = maximum + std::log(sum);
            }
        });
    });
}

void Device::do_attend_backward(const AttentionHeads& gradients,
                                const AttentionHeads& heads,
                                const AttentionBackward& backward,
                                const AttentionOptions& options) {
    const std::int64_t width = heads.queries.width;
    const Heads dy{backward.dy, heads.queries.heads, width, 0};
    with_real(backward.dy.dtype(), [&]<typename T>(T) {
        std::vector<T> sums;
        each_head(dy, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            const std::int64_t of = head / heads.group();
            HeadBackward<T> own{static_cast<T>(options.factor),
                                rows_of<T>(backward.log_sum_exp, dy, index),
                                rows_of<T>(backward.dy_y, dy, index)};
            each_tile(heads, options, [&](const Tile& tile) {
                const Stretch &queries = tile.queries, &keys = tile.keys;
                const auto of_queries = [&](const Heads& part) {
                    return packed<T>(part, part.offset(batch, head), queries.first,
                                     queries.count);
                };
                const auto of_keys = [&](const Heads& part) {
                    return packed<T>(part, part.offset(batch, of), keys.first,
                                     keys.count);
                };
                const auto q = of_queries(heads.queries), dy_rows = of_queries(dy);
                const auto k = of_keys(heads.keys), v = of_keys(heads.values);
                score(own.p, q, k, tile, width, options);
                own.ds.resize(own.p.size());
                multiply_matrices<T>({own.ds.data(),
                                      dy_rows.data(),
                                      v.data(),
                                      queries.count,
                                      width,
                                      keys.count,
                                      {.transpose_b = true}});
                own.weigh(queries, keys);
                const auto add = [&](const Heads& to, std::int64_t to_head,
                                     const std::vector<T>& weights,
                                     const std::vector<T>& what, const Stretch& rows,
                                     const Stretch& over, bool transpose) {
                    sums.resize(rows.size(width));
                    multiply_matrices<T>({sums.data(),
                                          weights.data(),
                                          what.data(),
                                          rows.count,
                                          over.count,
                                          width,
                                          {.transpose_a = transpose}});
                    add_packed(to, to.offset(batch, to_head), sums, T{1}, rows.first);
                };
                add(gradients.queries, head, own.ds, k, queries, keys, false);
                add(gradients.keys, of, own.ds, q, keys, queries, true);
                add(gradients.values, of, own.p, dy_rows, keys, queries, true);
            });
        });
    });
}

}  // namespace lockstep::sim

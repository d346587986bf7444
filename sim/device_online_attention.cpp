#include <algorithm>
#include <cmath>

#include "sim/attention_tiles.hpp"
#include "sim/device.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::sim {

namespace {

/// Scores become exp(score - off); gives their sum.
template <typename T>
T exponentials(T* scores, std::int64_t count, T off) {
    Lane<T> sum = Lane<T>::Zero();
    for (std::int64_t i = 0; i < count; i += kLane) {
        const std::int64_t some = std::min(kLane, count - i);
        const Lane<T> terms = exp_lane<T>(load(scores + i, some, kNone<T>) - off);
        store(scores + i, terms, some);
        sum += terms;
    }
    return sum.sum();
}

/// One head's forward, tile by tile.
template <typename T>
class HeadForward {
  public:
    HeadForward(const AttentionTiles& tiles, std::int64_t width)
        : tiles_(tiles), width_(width) {}

    std::vector<T> k, v;   ///< all keys and values, (n, width) each
    std::vector<T> q, y;   ///< of the tile's queries; q times the factor
    T *maximum{}, *sum{};  ///< numbers of the tile's queries

    /// Takes the tile's keys and values in.
    void take_in(const Stretch& queries, const KeyTile& tile) {
        const std::int64_t m = queries.count, n = tile.keys.count;
        tiles_.score(p_, q, k, queries, tile, width_);
        for (std::int64_t i = 0; i < m; ++i)
            weigh(p_.data() + i * n, n, i);
        const T* values = v.data() + tile.keys.first * width_;
        multiply_matrices<T>(
            {y.data(), p_.data(), values, m, n, width_, {.accumulate = true}});
    }

  private:
    /// The row's scores become exp(score - maximum) with the maximum of all so far, and
    /// its sums what they are relative to that.
    void weigh(T* scores, std::int64_t count, std::int64_t row) {
        const T larger = std::max(maximum[row], largest<T>(scores, count));
        const T by = formulas::rescaling(maximum[row], larger);
        const T off = larger == kNone<T> ? T{0} : larger;
        sum[row] = by * sum[row] + exponentials(scores, count, off);
        maximum[row] = larger;
        if (by == 1) return;
        for (std::int64_t column = 0; column < width_; ++column)
            y[row * width_ + column] *= by;
    }

    const AttentionTiles& tiles_;
    std::int64_t width_;
    std::vector<T> p_;  ///< of the tile, (queries, keys)
};

}  // namespace

void Device::do_attend(const OnlineAttention& state, const AttentionHeads& heads,
                       const AttentionOptions& options) {
    const std::int64_t m = heads.queries.rows(), width = heads.queries.width;
    const Heads y{state.y, heads.queries.heads, width, 0};
    const AttentionTiles tiles(m, heads.keys.rows(), options);
    with_real(state.y.dtype(), [&]<typename T>(T) {
        const auto factor = static_cast<T>(options.factor);
        HeadForward<T> own(tiles, width);
        each_head(y, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            const std::int64_t of = head / heads.group();
            own.k = packed<T>(heads.keys, heads.keys.offset(batch, of));
            own.v = packed<T>(heads.values, heads.values.offset(batch, of));
            for (const auto& [queries, key_tiles] : tiles) {
                own.q = packed<T>(heads.queries, heads.queries.offset(batch, head),
                                  queries.first, queries.count, factor);
                own.y = packed<T>(y, y.offset(batch, head), queries.first, queries.count);
                own.maximum = state.maximum.data<T>() + index * m + queries.first;
                own.sum = state.sum.data<T>() + index * m + queries.first;
                for (const KeyTile& tile : key_tiles)
                    own.take_in(queries, tile);
                unpack(y, y.offset(batch, head), own.y, queries.first);
            }
        });
    });
}

void Device::do_finish_attention(const Tensor& log_sum_exp,
                                 const OnlineAttention& state) {
    const std::int64_t heads = state.maximum.shape()[1];
    const Heads y{state.y, heads, state.y.shape()[2] / heads, 0};
    with_real(state.y.dtype(), [&]<typename T>(T) {
        each_head(y, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            const T* sums = state.sum.data<T>() + index * y.rows();
            const T* maxima = state.maximum.data<T>() + index * y.rows();
            T* results = log_sum_exp.data<T>() + index * y.rows();
            T* values = y.tensor.data<T>() + y.offset(batch, head);
            for (std::int64_t row = 0; row < y.rows(); ++row) {
                const T inverse = sums[row] == 0 ? T{0} : 1 / sums[row];
                for (std::int64_t column = 0; column < y.width; ++column)
                    values[row * y.pitch() + column] *= inverse;
                results[row] = maxima[row] + std::log(sums[row]);
            }
        });
    });
}

}  // namespace lockstep::sim

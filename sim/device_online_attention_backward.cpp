#include "sim/attention_tiles.hpp"
#include "sim/device.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::sim {

namespace {

template <typename T>
Lane<T> times(const Lane<T>& a, const Lane<T>& b) {
    return a * b;
}

/// One head's backward, tile by tile.
template <typename T>
class HeadBackward {
  public:
    HeadBackward(const AttentionTiles& tiles, std::int64_t width)
        : tiles_(tiles), width_(width) {}

    std::vector<T> k, v;              ///< all keys and values, (n, width) each
    std::vector<T> dk, dv;            ///< their gradients
    std::vector<T> q, dy;             ///< of the tile's queries; q times the factor
    std::vector<T> dq;                ///< their gradient, without the factor
    const T *log_sum_exp{}, *dy_y{};  ///< numbers of the tile's queries

    /// Adds what a tile contributes to the gradients.
    void add_tile(const Stretch& queries, const KeyTile& tile) {
        const std::int64_t m = queries.count, n = tile.keys.count;
        const std::int64_t first = tile.keys.first * width_;
        tiles_.score(p_, q, k, queries, tile, width_);
        ds_.resize(p_.size());
        multiply_matrices<T>({ds_.data(),
                              dy.data(),
                              v.data() + first,
                              m,
                              width_,
                              n,
                              {.transpose_b = true}});
        for (std::int64_t i = 0; i < m; ++i)
            weigh(p_.data() + i * n, ds_.data() + i * n, n, log_sum_exp[i], dy_y[i]);

        constexpr MatmulOptions kAdd{.accumulate = true};
        constexpr MatmulOptions kAddTransposed{.transpose_a = true, .accumulate = true};
        multiply_matrices<T>(
            {dq.data(), ds_.data(), k.data() + first, m, n, width_, kAdd});
        multiply_matrices<T>(
            {dk.data() + first, ds_.data(), q.data(), n, m, width_, kAddTransposed});
        multiply_matrices<T>(
            {dv.data() + first, p_.data(), dy.data(), n, m, width_, kAddTransposed});
    }

  private:
    /// Of a row: p = exp(scores - log_sum_exp), ds = p (dp - dy_y).
    static void weigh(T* p, T* ds, std::int64_t count, T log_sum_exp, T dy_y) {
        const T off = log_sum_exp == kNone<T> ? T{0} : log_sum_exp;
        for (std::int64_t i = 0; i < count; i += kLane) {
            const std::int64_t some = std::min(kLane, count - i);
            const Lane<T> weights = exp_lane<T>(load(p + i, some) - off);
            store<T>(ds + i, weights * (load(ds + i, some) - dy_y), some);
            store(p + i, weights, some);
        }
    }

    const AttentionTiles& tiles_;
    std::int64_t width_;
    std::vector<T> p_, ds_;  ///< of the tile, (queries, keys)
};

}  // namespace

void Device::do_head_row_products(const Tensor& products, const Heads& x,
                                  const Heads& y) {
    with_real(products.dtype(), [&]<typename T>(T) {
        T* product = products.data<T>();
        each_head(x, [&](std::int64_t, std::int64_t batch, std::int64_t head) {
            const T* left = x.tensor.data<T>() + x.offset(batch, head);
            const T* right = y.tensor.data<T>() + y.offset(batch, head);
            for (std::int64_t row = 0; row < x.rows(); ++row)
                *product++ = static_cast<T>(sum_lanes(
                    x.width, times<T>, left + row * x.pitch(), right + row * y.pitch()));
        });
    });
}

void Device::do_attend_backward(const AttentionHeads& gradients,
                                const AttentionHeads& heads,
                                const AttentionBackward& backward,
                                const AttentionOptions& options) {
    const std::int64_t m = heads.queries.rows(), width = heads.queries.width;
    const Heads dy{backward.dy, heads.queries.heads, width, 0};
    const AttentionTiles tiles(m, heads.keys.rows(), options);
    with_real(backward.dy.dtype(), [&]<typename T>(T) {
        const auto factor = static_cast<T>(options.factor);
        HeadBackward<T> own(tiles, width);
        each_head(dy, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            const std::int64_t of = head / heads.group();
            own.k = packed<T>(heads.keys, heads.keys.offset(batch, of));
            own.v = packed<T>(heads.values, heads.values.offset(batch, of));
            own.dk.assign(own.k.size(), 0);
            own.dv.assign(own.v.size(), 0);
            for (const auto& [queries, key_tiles] : tiles) {
                own.q = packed<T>(heads.queries, heads.queries.offset(batch, head),
                                  queries.first, queries.count, factor);
                own.dy =
                    packed<T>(dy, dy.offset(batch, head), queries.first, queries.count);
                own.dq.assign(own.q.size(), 0);
                const std::int64_t row = index * m + queries.first;
                own.log_sum_exp = backward.log_sum_exp.data<T>() + row;
                own.dy_y = backward.dy_y.data<T>() + row;
                for (const KeyTile& tile : key_tiles)
                    own.add_tile(queries, tile);
                add_packed(gradients.queries, gradients.queries.offset(batch, head),
                           own.dq, factor, queries.first);
            }
            add_packed(gradients.keys, gradients.keys.offset(batch, of), own.dk);
            add_packed(gradients.values, gradients.values.offset(batch, of), own.dv);
        });
    });
}

}  // namespace lockstep::sim

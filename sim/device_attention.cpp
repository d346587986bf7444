#include <algorithm>
#include <cmath>
#include <cstring>

#include "sim/attention_tiles.hpp"
#include "sim/device.hpp"
#include "sim/heads.hpp"
#include "sim/lane_functions.hpp"
#include "sim/matmul.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::sim {

namespace {

/// destination += factor * op(weights) y of each head.
void add_sums(const Heads& destination, const Tensor& weights, const Heads& y,
              const HeadSumOptions& options) {
    const std::int64_t m = destination.rows();
    const std::int64_t n = y.rows();
    const std::int64_t width = y.width;
    with_real(weights.dtype(), [&]<typename T>(T) {
        const auto factor = static_cast<T>(options.factor);
        // How many heads of weights are added into one head.
        const std::int64_t heads = std::max(destination.heads, y.heads);
        const std::int64_t added = heads / destination.heads;
        each_head_in_parts(destination, long_part_of(added * m * (n + width)), [&] {
            return [&, sums = std::vector<T>(static_cast<std::size_t>(m * width))](
                       std::int64_t index, std::int64_t batch,
                       std::int64_t into) mutable {
                for (std::int64_t i = 0; i < added; ++i) {
                    const std::int64_t y_head = (into * added + i) / (heads / y.heads);
                    const std::vector<T> values = packed<T>(y, y.offset(batch, y_head));
                    multiply_matrices<T>({sums.data(),
                                          weights.data<T>() + (index * added + i) * m * n,
                                          values.data(),
                                          m,
                                          n,
                                          width,
                                          {.transpose_a = options.transpose}});
                    add_packed(destination, destination.offset(batch, into), sums,
                               factor);
                }
            };
        });
    });
}

}  // namespace

template <>
void CpuDevice::compute(const ops::HeadProducts& op) {
    const std::int64_t m = op.x.rows();
    const std::int64_t n = op.y.rows();
    with_real(op.products.dtype(), [&]<typename T>(T) {
        const auto multiply = [&](std::int64_t index, std::int64_t batch,
                                  std::int64_t head) {
            std::vector<T> left = packed<T>(op.x, op.x.offset(batch, head));
            for (T& value : left)
                value *= static_cast<T>(op.factor);
            const std::vector<T> right =
                packed<T>(op.y, op.y.offset(batch, head / (op.x.heads / op.y.heads)));
            multiply_matrices<T>({op.products.data<T>() + index * m * n,
                                  left.data(),
                                  right.data(),
                                  m,
                                  op.x.width,
                                  n,
                                  {.transpose_b = true}});
        };
        each_head_in_parts(op.x, long_part_of(m * (n + op.x.width)),
                           [&] { return multiply; });
    });
}

template <>
void CpuDevice::compute(const ops::HeadSums& op) {
    compute(ops::Fill{op.sums, 0});
    add_sums(op.destination(), op.weights, op.y, {});
}

template <>
void CpuDevice::compute(const ops::AddHeadSums& op) {
    add_sums(op.destination, op.weights, op.y, op.options);
}

namespace {

/// Replaces scores by exp(score - off), and returns their sum.
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
    std::vector<T> q, y;   ///< for the tile's queries; q times the factor
    T *maximum{}, *sum{};  ///< one number per query

    /// Adds a tile's keys and values to the results.
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
    /// Replaces the row's scores by exp(score - maximum), with the maximum so far, and
    /// rescales the row's sums to that maximum.
    void weigh(T* scores, std::int64_t count, std::int64_t row) {
        const T larger = std::max(maximum[row], largest<T>(scores, count));
        const T rescaling = formulas::rescaling(maximum[row], larger);
        const T off = formulas::taken_off(larger);
        sum[row] = rescaling * sum[row] + exponentials(scores, count, off);
        maximum[row] = larger;
        if (rescaling == 1) return;
        for (std::int64_t column = 0; column < width_; ++column)
            y[row * width_ + column] *= rescaling;
    }

    const AttentionTiles& tiles_;
    std::int64_t width_;
    std::vector<T> p_;  ///< for the tile, (queries, keys)
};

}  // namespace

template <>
void CpuDevice::compute(const ops::Attend& op) {
    const std::int64_t m = op.heads.queries.rows(), width = op.heads.queries.width;
    const Heads y{op.state.y, op.heads.queries.heads, width, 0};
    const AttentionTiles tiles(m, op.heads.keys.rows(), op.options);
    with_real(op.state.y.dtype(), [&]<typename T>(T) {
        const auto factor = static_cast<T>(op.options.factor);
        const auto attend = [&](HeadForward<T>& own, std::int64_t index,
                                std::int64_t batch, std::int64_t head) {
            const std::int64_t key_head = head / op.heads.group();
            own.k = packed<T>(op.heads.keys, op.heads.keys.offset(batch, key_head));
            own.v = packed<T>(op.heads.values, op.heads.values.offset(batch, key_head));
            for (const auto& [queries, key_tiles] : tiles) {
                own.q = packed<T>(op.heads.queries, op.heads.queries.offset(batch, head),
                                  queries.first, queries.count, factor);
                own.y = packed<T>(y, y.offset(batch, head), queries.first, queries.count);
                own.maximum = op.state.maximum.data<T>() + index * m + queries.first;
                own.sum = op.state.sum.data<T>() + index * m + queries.first;
                for (const KeyTile& tile : key_tiles)
                    own.take_in(queries, tile);
                unpack(y, y.offset(batch, head), own.y, queries.first);
            }
        };
        each_head_in_parts(y, long_part_of(m * op.heads.keys.rows()), [&] {
            return [&, own = HeadForward<T>(tiles, width)](const auto... at) mutable {
                attend(own, at...);
            };
        });
    });
}

template <>
void CpuDevice::compute(const ops::FinishAttention& op) {
    const Heads y = op.y();
    with_real(op.state.y.dtype(), [&]<typename T>(T) {
        each_head(y, [&](std::int64_t index, std::int64_t batch, std::int64_t head) {
            const T* sums = op.state.sum.data<T>() + index * y.rows();
            const T* maxima = op.state.maximum.data<T>() + index * y.rows();
            T* results = op.state.maximum.data<T>() + index * y.rows();
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
    std::vector<T> q, dy;             ///< for the tile's queries; q times the factor
    std::vector<T> dq;                ///< the gradient of q, without the factor
    const T *log_sum_exp{}, *dy_y{};  ///< one number per query

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
    /// Computes for a row: p = exp(scores - log_sum_exp), ds = p (dp - dy_y).
    static void weigh(T* p, T* ds, std::int64_t count, T log_sum_exp, T dy_y) {
        const T off = formulas::taken_off(log_sum_exp);
        for (std::int64_t i = 0; i < count; i += kLane) {
            const std::int64_t some = std::min(kLane, count - i);
            const Lane<T> weights = exp_lane<T>(load(p + i, some) - off);
            store<T>(ds + i, weights * (load(ds + i, some) - dy_y), some);
            store(p + i, weights, some);
        }
    }

    const AttentionTiles& tiles_;
    std::int64_t width_;
    std::vector<T> p_, ds_;  ///< for the tile, (queries, keys)
};

}  // namespace

template <>
void CpuDevice::compute(const ops::HeadRowProducts& op) {
    with_real(op.products.dtype(), [&]<typename T>(T) {
        std::int64_t place = 0;
        each_head(op.x, [&](std::int64_t, std::int64_t batch, std::int64_t head) {
            const T* left = op.x.tensor.data<T>() + op.x.offset(batch, head);
            const T* right = op.y.tensor.data<T>() + op.y.offset(batch, head);
            T* products = op.products.data<T>();
            for (std::int64_t row = 0; row < op.x.rows(); ++row)
                products[place++] = static_cast<T>(sum_lanes(op.x.width, times<T>,
                                                             left + row * op.x.pitch(),
                                                             right + row * op.y.pitch()));
        });
    });
}

namespace {

/// Rotates a head's row. The row's halves a and b become a c - b s and b c + a s; c and s
/// are the cosines and sines of the columns' angles.
template <typename T>
void rotate_row(T* destination, const T* source, const std::vector<T>& cosines,
                const std::vector<T>& sines) {
    const auto half = static_cast<std::int64_t>(cosines.size());
    for (std::int64_t i = 0; i < half; i += kLane) {
        const std::int64_t count = std::min(kLane, half - i);
        const Lane<T> a = load(source + i, count), b = load(source + half + i, count);
        const Lane<T> c = load(&cosines[i], count), s = load(&sines[i], count);
        store<T>(destination + i, a * c - b * s, count);
        store<T>(destination + half + i, b * c + a * s, count);
    }
}

}  // namespace

template <>
void CpuDevice::compute(const ops::Rotate& op) {
    const Heads& source = op.source;
    const std::int64_t half = source.width / 2, batches = source.batches();
    const auto* places = op.places ? op.places.data<const std::int32_t>() : nullptr;
    with_real(source.tensor.dtype(), [&]<typename T>(T) {
        std::vector<T> cosines(half), sines(half);
        const auto turn_to = [&](std::int64_t position) {
            for (std::int64_t pair = 0; pair < half; ++pair) {
                const double angle =
                    static_cast<double>(position) *
                    formulas::rotary_frequency(pair, source.width, op.options.base);
                cosines[pair] = static_cast<T>(std::cos(angle));
                sines[pair] =
                    static_cast<T>(std::sin(op.options.inverse ? -angle : angle));
            }
        };
        for (std::int64_t row = 0; row < source.rows(); ++row) {
            if (places == nullptr) turn_to(op.positions[row]);
            each_head(source, [&](std::int64_t, std::int64_t batch, std::int64_t head) {
                if (places != nullptr && head == 0)
                    turn_to(places[row * batches + batch]);
                const auto row_of = [&](const Heads& heads) {
                    return heads.tensor.data<T>() + heads.offset(batch, head) +
                           row * heads.pitch();
                };
                rotate_row<T>(row_of(op.destination), row_of(source), cosines, sines);
            });
        }
    });
}

template <>
void CpuDevice::compute(const ops::HeadMatmul& op) {
    const Heads y = op.destination();
    const std::int64_t n = op.n(), width = op.x.width;
    with_real(op.y.dtype(), [&]<typename T>(T) {
        std::vector<T> product(static_cast<std::size_t>(op.x.rows() * n));
        each_head(op.x, [&](std::int64_t, std::int64_t batch, std::int64_t head) {
            const std::vector<T> rows = packed<T>(op.x, op.x.offset(batch, head));
            multiply_matrices<T>({product.data(), rows.data(),
                                  op.matrices.data<const T>() + head * width * n,
                                  op.x.rows(), width, n, op.options});
            unpack(y, y.offset(batch, head), product, 0);
        });
    });
}

template <>
void CpuDevice::compute(const ops::StorePages& op) {
    const std::int64_t element = bytes_of(op.source.dtype());
    const std::int64_t columns = op.source.shape().columns();
    const std::byte* from = op.source.bytes_begin() + op.from * element;
    op.each_row([&](std::int64_t row, std::int64_t place) {
        std::memcpy(op.pages.bytes_begin() + place * op.columns() * element,
                    from + row * columns * element,
                    static_cast<std::size_t>(op.columns() * element));
    });
}

namespace {

/// One head's attention over the keys of a sequence, for one row at a time.
template <typename T>
class PagedRow {
  public:
    PagedRow(const ops::AttendPages& op, const PagedSequence& sequence)
        : op_(op), sequence_(sequence) {}

    /// Computes y for the row of token `token`, from the row's query. Also uses the
    /// turned query, if that is not null.
    void attend(T* y, const T* query, const T* turned, std::int64_t head,
                std::int64_t token) {
        scores_.resize(static_cast<std::size_t>(token + 1));
        for (std::int64_t key = 0; key <= token; ++key) {
            double score =
                sum_lanes(op_.keys.width, times<T>, query, row_of(op_.keys, head, key));
            if (turned != nullptr)
                score += sum_lanes(op_.turned_keys.width, times<T>, turned,
                                   row_of(op_.turned_keys, head, key));
            scores_[static_cast<std::size_t>(key)] = static_cast<T>(op_.factor * score);
        }
        const T most = largest<T>(scores_.data(), token + 1);
        const T sum = exponentials(scores_.data(), token + 1, formulas::taken_off(most));
        sums_.assign(static_cast<std::size_t>(op_.values.width), 0);
        for (std::int64_t key = 0; key <= token; ++key) {
            const double weight = scores_[static_cast<std::size_t>(key)];
            const T* value = row_of(op_.values, head, key);
            for (std::size_t i = 0; i < sums_.size(); ++i)
                sums_[i] += weight * static_cast<double>(value[i]);
        }
        for (std::size_t i = 0; i < sums_.size(); ++i)
            y[i] = static_cast<T>(sums_[i] / static_cast<double>(sum));
    }

  private:
    const T* row_of(const Heads& pages, std::int64_t head, std::int64_t token) const {
        const std::int64_t of_page = pages.batches();
        const auto page = static_cast<std::size_t>(token / of_page);
        return pages.tensor.data<const T>() + sequence_.pages[page] * pages.pitch() +
               pages.offset(token % of_page, head);
    }

    const ops::AttendPages& op_;
    const PagedSequence& sequence_;
    std::vector<T> scores_;
    std::vector<double> sums_;
};

}  // namespace

template <>
void CpuDevice::compute(const ops::AttendPages& op) {
    const std::int64_t group = op.queries.heads / op.keys.heads;
    const std::int64_t batches = op.queries.batches();
    const Heads y{op.y, op.queries.heads, op.values.width, 0};
    with_real(op.y.dtype(), [&]<typename T>(T) {
        std::int64_t row = 0;
        for (const PagedSequence& sequence : op.tokens->sequences) {
            PagedRow<T> own(op, sequence);
            for (std::int64_t i = 0; i < sequence.count; ++i, ++row)
                for (std::int64_t head = 0; head < y.heads; ++head) {
                    const auto place = [&](const Heads& heads) {
                        return heads.tensor.data<T>() + row / batches * heads.pitch() +
                               heads.offset(row % batches, head);
                    };
                    own.attend(place(y), place(op.queries),
                               op.has_turned() ? place(op.turned_queries) : nullptr,
                               head / group, sequence.first + i);
                }
        }
    });
}

template <>
void CpuDevice::compute(const ops::AttendBackward& op) {
    const std::int64_t m = op.heads.queries.rows(), width = op.heads.queries.width;
    const Heads dy{op.backward.dy, op.heads.queries.heads, width, 0};
    const AttentionTiles tiles(m, op.heads.keys.rows(), op.options);
    with_real(op.backward.dy.dtype(), [&]<typename T>(T) {
        const auto factor = static_cast<T>(op.options.factor);
        const auto go_back = [&](HeadBackward<T>& own, std::int64_t index,
                                 std::int64_t batch, std::int64_t head,
                                 std::int64_t key_head) {
            own.k = packed<T>(op.heads.keys, op.heads.keys.offset(batch, key_head));
            own.v = packed<T>(op.heads.values, op.heads.values.offset(batch, key_head));
            own.dk.assign(own.k.size(), 0);
            own.dv.assign(own.v.size(), 0);
            for (const auto& [queries, key_tiles] : tiles) {
                own.q = packed<T>(op.heads.queries, op.heads.queries.offset(batch, head),
                                  queries.first, queries.count, factor);
                own.dy =
                    packed<T>(dy, dy.offset(batch, head), queries.first, queries.count);
                own.dq.assign(own.q.size(), 0);
                const std::int64_t row = index * m + queries.first;
                own.log_sum_exp = op.backward.log_sum_exp.data<T>() + row;
                own.dy_y = op.backward.dy_y.data<T>() + row;
                for (const KeyTile& tile : key_tiles)
                    own.add_tile(queries, tile);
                add_packed(op.gradients.queries, op.gradients.queries.offset(batch, head),
                           own.dq, factor, queries.first);
            }
            add_packed(op.gradients.keys, op.gradients.keys.offset(batch, key_head),
                       own.dk);
            add_packed(op.gradients.values, op.gradients.values.offset(batch, key_head),
                       own.dv);
        };
        // Queries of a group add to the same gradients of keys and values. If gradients
        // share memory, any two heads may add to the same number.
        const std::int64_t group = op.heads.group();
        const AttentionHeads& sums = op.gradients;
        const bool apart = !sums.queries.meets(sums.keys) &&
                           !sums.keys.meets(sums.values) &&
                           !sums.values.meets(sums.queries);
        const std::int64_t unit = apart ? long_part_of(group * m * op.heads.keys.rows())
                                        : op.heads.keys.batches() * op.heads.keys.heads;
        each_head_in_parts(op.heads.keys, unit, [&] {
            return [&, own = HeadBackward<T>(tiles, width)](
                       std::int64_t, std::int64_t batch, std::int64_t key_head) mutable {
                for (std::int64_t head = key_head * group; head < (key_head + 1) * group;
                     ++head)
                    go_back(own, batch * dy.heads + head, batch, head, key_head);
            };
        });
    });
}

}  // namespace lockstep::sim

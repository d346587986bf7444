#include <cmath>
#include <limits>
#include <type_traits>

#include "gpu/kernels/rows.cuh"
#include "gpu/kernels/softmax.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

/// The sum of exp(x - largest), so that no exponential overflows. A NaN gives NaN.
template <typename T>
struct Exponentials {
    T largest = -std::numeric_limits<T>::infinity();
    T sum = 0;

    /// Call this once per row, because it tests `largest`, not the row's elements.
    __device__ T taken_off() const { return formulas::taken_off(largest); }
    __device__ void rescale(T larger) {
        sum *= formulas::rescaling(largest, larger);
        largest = larger;
    }
};

// A mask says which columns a row sees: seen() has a bit for each lane of a pack. If a
// row sees no column, its sum and all its results are 0.

struct Unmasked {
    static constexpr Keeps kKeeps = Keeps::little;
    static constexpr bool kDivides = false;
    struct OfRow {
        template <int kWidth>
        __device__ unsigned seen(std::int64_t) const {
            return ~0U;
        }
    };
    __device__ OfRow of_row(std::int64_t) const { return {}; }
};

/// Rows and columns in the order of tokens: a row sees the columns up to its own and
/// `ahead` more columns.
struct Causal {
    static constexpr Keeps kKeeps = Keeps::much;
    static constexpr bool kDivides = false;
    std::int64_t rows;  ///< of one matrix
    std::int64_t ahead;
    struct OfRow {
        std::int64_t last;
        template <int kWidth>
        __device__ unsigned seen(std::int64_t column) const {
            const std::int64_t more = last - column;
            if (more < 0) return 0;
            return more < kWidth ? (2U << more) - 1 : ~0U;
        }
    };
    __device__ OfRow of_row(std::int64_t row) const { return {row % rows + ahead}; }
};

/// For any order of tokens, at the cost of a division per column. A row sees columns
/// whose token is not after its own.
struct CausalByTokens {
    static constexpr Keeps kKeeps = Keeps::much;
    static constexpr bool kDivides = true;
    std::int64_t rows;  ///< of one matrix
    TokenRows queries, keys;
    struct OfRow {
        TokenRows keys;
        std::int64_t last;
        template <int kWidth>
        __device__ unsigned seen(std::int64_t column) const {
            unsigned bits = 0;
            for (int lane = 0; lane < kWidth; ++lane)
                bits |= keys[column + lane] <= last ? 1U << lane : 0;
            return bits;
        }
    };
    __device__ OfRow of_row(std::int64_t row) const {
        return {keys, queries[row % rows]};
    }
};

__device__ bool has(unsigned seen, int lane) {
    return (seen >> lane & 1) != 0;
}

/// Returns the row's exponentials, one sweep after another (Milakov & Gimelshein, arXiv
/// 1805.02867). Leaves the last sweep in `held`.
template <typename T, typename Plan, typename S, typename Mask>
__device__ Exponentials<T> exponentials(const Row<T, Plan>& row, const S* x,
                                        const Mask& mask,
                                        Pack<T, Plan::kWidth> (&held)[kHeld]) {
    constexpr int kWidth = Plan::kWidth;
    constexpr T kNone = -std::numeric_limits<T>::infinity();
    Exponentials<T> of_thread;
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.read(base, held, x, kNone);
        row.each(base, [&](int k, std::int64_t pack) {
            const unsigned seen = mask.template seen<kWidth>(pack * kWidth);
            for (int lane = 0; lane < kWidth; ++lane)
                if (!has(seen, lane)) held[k].value[lane] = kNone;
        });
        T largest = of_thread.largest;
        row.each(base, [&](int k, std::int64_t) {
            for (int lane = 0; lane < kWidth; ++lane)
                largest = Larger{}(largest, held[k].value[lane]);
        });
        of_thread.rescale(largest);
        const T off = of_thread.taken_off();
        row.each(base, [&](int k, std::int64_t) {
            for (int lane = 0; lane < kWidth; ++lane)
                of_thread.sum += std::exp(held[k].value[lane] - off);
        });
    }
    of_thread.rescale(row.largest(of_thread.largest));
    of_thread.sum = row.sum(of_thread.sum);
    return of_thread;
}

struct Itself {
    template <typename T>
    __device__ T operator()(T probability, std::int64_t, std::int64_t) const {
        return probability;
    }
};

struct LossGradient {
    const std::int32_t* targets;
    double factor;
    template <typename T>
    __device__ T operator()(T probability, std::int64_t row, std::int64_t column) const {
        return static_cast<T>(factor) *
               (column == targets[row] ? probability - 1 : probability);
    }
};

template <typename S, typename Plan, typename Masks, typename Finish>
__global__ void __launch_bounds__(Plan::kThreads,
                                  Masks::kDivides ? Plan::kRoomyBlocks : Plan::kBlocks)
    softmax_rows(S* y, const S* x, MatrixShape shape, Masks masks, Finish finish) {
    using T = Computed<S>;
    const Row<T, Plan> row(shape);
    if (!row.exists()) return;
    const auto mask = masks.of_row(row.index());
    Pack<T, Plan::kWidth> held[kHeld];
    const Exponentials<T> whole = exponentials(row, x, mask, held);
    const T inverse = 1 / whole.sum;
    const T off = whole.taken_off();
    const auto result = [&](T value, std::int64_t column) {
        return finish(inverse * std::exp(value - off), row.index(), column);
    };
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        if (!Plan::kOnce) row.read(base, held, x);
        row.each(base, [&](int k, std::int64_t pack) {
            const std::int64_t column = pack * Plan::kWidth;
            const unsigned seen = mask.template seen<Plan::kWidth>(column);
            for (int lane = 0; lane < Plan::kWidth; ++lane) {
                T& value = held[k].value[lane];
                value = has(seen, lane) ? result(value, column + lane) : T{0};
            }
            row.write(y, pack, held[k]);
        });
    }
}

/// y = the logarithm of each row's sum of exp(x), minus its target's x if there are
/// targets.
template <typename S, typename Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    log_sum_exp_rows(Computed<S>* y, const S* x, const std::int32_t* targets,
                     MatrixShape shape) {
    using T = Computed<S>;
    const Row<T, Plan> row(shape);
    if (!row.exists()) return;
    Pack<T, Plan::kWidth> held[kHeld];
    const Exponentials<T> whole = exponentials(row, x, Unmasked::OfRow{}, held);
    if (!row.first_thread()) return;
    const T off =
        targets ? T(x[row.index() * shape.columns + targets[row.index()]]) : T{0};
    y[row.index()] = std::log(whole.sum) + (whole.largest - off);
}

/// y = x / sum(x).
template <typename S, typename Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    normalize_rows(S* y, const S* x, MatrixShape shape) {
    using T = Computed<S>;
    const Row<T, Plan> row(shape);
    if (!row.exists()) return;
    Pack<T, Plan::kWidth> held[kHeld];
    T sum = 0;
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.read(base, held, x);
        row.each(base, [&](int k, std::int64_t) {
            for (int lane = 0; lane < Plan::kWidth; ++lane)
                sum += held[k].value[lane];
        });
    }
    const T inverse = 1 / (row.sum(sum) + formulas::kLeastSum<T>);
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        if (!Plan::kOnce) row.read(base, held, x);
        row.each(base, [&](int k, std::int64_t pack) {
            for (int lane = 0; lane < Plan::kWidth; ++lane)
                held[k].value[lane] *= inverse;
            row.write(y, pack, held[k]);
        });
    }
}

// Both derivatives have the same form: dx of an element follows from x or y, from dy, and
// from two sums over the row.

/// dx = y * (dy - sum(y * dy)).
struct OfSoftmax {
    template <typename T>
    __device__ static T dx(T y, T dy, T /*sum*/, T along) {
        return y * (dy - along);
    }
};

/// dx = (dy - sum(x * dy) / sum(x)) / sum(x).
struct OfNormalized {
    template <typename T>
    __device__ static T dx(T /*x*/, T dy, T sum, T along) {
        return (dy - along / sum) / sum;
    }
};

template <typename Of, typename S, typename Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    backward_rows(S* dx, const S* operand, const S* dy, MatrixShape shape) {
    using T = Computed<S>;
    const Row<T, Plan> row(shape);
    if (!row.exists()) return;
    Pack<T, Plan::kWidth> held[kHeld], gradient[kHeld];
    T sum = 0, along = 0;
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.read(base, held, operand, gradient, dy);
        row.each(base, [&](int k, std::int64_t) {
            for (int lane = 0; lane < Plan::kWidth; ++lane) {
                sum += held[k].value[lane];
                along += held[k].value[lane] * gradient[k].value[lane];
            }
        });
    }
    if constexpr (std::is_same_v<Of, OfNormalized>)
        sum = row.sum(sum) + formulas::kLeastSum<T>;
    along = row.sum(along);
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        if (!Plan::kOnce) row.read(base, held, operand, gradient, dy);
        row.each(base, [&](int k, std::int64_t pack) {
            for (int lane = 0; lane < Plan::kWidth; ++lane)
                held[k].value[lane] =
                    Of::dx(held[k].value[lane], gradient[k].value[lane], sum, along);
            row.write(dx, pack, held[k]);
        });
    }
}

template <typename Of>
void launch_backward_rows(cudaStream_t stream, Numbers dx, Numbers operand, Numbers dy,
                          std::int64_t rows, std::int64_t columns) {
    with_type(dx, [&]<typename S>(S) {
        const MatrixShape shape{rows, columns, aligned(dx, operand, dy)};
        with_plan<S, Keeps::much>(shape, [&]<typename Plan>(Plan, int blocks) {
            launch(stream, backward_rows<Of, S, Plan>, blocks, Plan::kThreads, dx.as<S>(),
                   operand.as<S>(), dy.as<S>(), shape);
        });
    });
}

void launch_log_sum_exp_rows(cudaStream_t stream, Numbers y, Numbers x,
                             const std::int32_t* targets, std::int64_t rows,
                             std::int64_t columns) {
    with_type(x, [&]<typename S>(S) {
        const MatrixShape shape{rows, columns, aligned(x)};
        with_plan<S, Keeps::nothing>(shape, [&]<typename Plan>(Plan, int blocks) {
            launch(stream, log_sum_exp_rows<S, Plan>, blocks, Plan::kThreads,
                   y.as<Computed<S>>(), x.as<S>(), targets, shape);
        });
    });
}

template <typename Masks, typename Finish>
void launch_softmax_rows(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                         std::int64_t columns, const Masks& masks, const Finish& finish) {
    const MatrixShape shape{rows, columns, aligned(y, x)};
    with_type(y, [&]<typename S>(S) {
        with_plan<S, Masks::kKeeps>(shape, [&]<typename Plan>(Plan, int blocks) {
            launch(stream, softmax_rows<S, Plan, Masks, Finish>, blocks, Plan::kThreads,
                   y.as<S>(), x.as<S>(), shape, masks, finish);
        });
    });
}

}  // namespace

void launch_softmax(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                    std::int64_t columns) {
    launch_softmax_rows(stream, y, x, rows, columns, Unmasked{}, Itself{});
}

void launch_causal_softmax(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                           std::int64_t columns, const CausalRows& causal) {
    const auto start = [&](const auto& masks) {
        launch_softmax_rows(stream, y, x, rows, columns, masks, Itself{});
    };
    const auto in_order = [](const TokenRows& tokens) {
        return tokens.order == TokenOrder::contiguous;
    };
    if (in_order(causal.queries) && in_order(causal.keys))
        start(Causal{causal.rows, causal.queries.first - causal.keys.first});
    else
        start(CausalByTokens{causal.rows, causal.queries, causal.keys});
}

void launch_softmax_backward(cudaStream_t stream, Numbers dx, Numbers y, Numbers dy,
                             std::int64_t rows, std::int64_t columns) {
    launch_backward_rows<OfSoftmax>(stream, dx, y, dy, rows, columns);
}

void launch_log_sum_exp(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                        std::int64_t columns) {
    launch_log_sum_exp_rows(stream, y, x, nullptr, rows, columns);
}

void launch_normalize_rows(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                           std::int64_t columns) {
    with_type(y, [&]<typename S>(S) {
        const MatrixShape shape{rows, columns, aligned(y, x)};
        with_plan<S, Keeps::little>(shape, [&]<typename Plan>(Plan, int blocks) {
            launch(stream, normalize_rows<S, Plan>, blocks, Plan::kThreads, y.as<S>(),
                   x.as<S>(), shape);
        });
    });
}

void launch_normalize_rows_backward(cudaStream_t stream, Numbers dx, Numbers x,
                                    Numbers dy, std::int64_t rows, std::int64_t columns) {
    launch_backward_rows<OfNormalized>(stream, dx, x, dy, rows, columns);
}

void launch_cross_entropy(cudaStream_t stream, Numbers losses, Numbers logits,
                          const std::int32_t* targets, std::int64_t rows,
                          std::int64_t columns) {
    launch_log_sum_exp_rows(stream, losses, logits, targets, rows, columns);
}

void launch_cross_entropy_backward(cudaStream_t stream, Numbers d_logits, Numbers logits,
                                   const std::int32_t* targets, std::int64_t rows,
                                   std::int64_t columns, double factor) {
    launch_softmax_rows(stream, d_logits, logits, rows, columns, Unmasked{},
                        LossGradient{targets, factor});
}

}  // namespace lockstep::gpu

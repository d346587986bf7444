#include <cmath>
#include <limits>

#include "gpu/kernels/rows.cuh"
#include "gpu/kernels/softmax.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

/// The sum of exp(x - largest), so that no exponential overflows. A NaN makes it NaN.
template <typename T>
struct Exponentials {
    T largest = -std::numeric_limits<T>::infinity();
    T sum = 0;

    /// Is asked for once a row, since each of its elements would test the same.
    __device__ T taken_off() const { return formulas::taken_off(largest); }
    __device__ void rescale(T larger) {
        sum *= formulas::rescaling(largest, larger);
        largest = larger;
    }
};

// A mask says which columns a row sees. A row may see none: its sum is 0, and all of its
// results are.

struct Unmasked {
    struct OfRow {
        __device__ bool sees(std::int64_t) const { return true; }
        template <typename Values>
        __device__ void hide(Values&, std::int64_t) const {}
    };
    __device__ OfRow of_row(std::int64_t) const { return {}; }
};

/// Columns whose token is not behind the row's.
template <typename Tokens>
struct Seen {
    Tokens of_columns;
    std::int64_t last;
    __device__ bool sees(std::int64_t column) const { return of_columns[column] <= last; }
    /// In a pack from `column` on, -infinity stands for what the row does not see.
    template <typename T, int kWidth>
    __device__ void hide(Pack<T, kWidth>& values, std::int64_t column) const {
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane)
            if (!sees(column + lane))
                values.value[lane] = -std::numeric_limits<T>::infinity();
    }
};

struct ColumnItself {
    __device__ std::int64_t operator[](std::int64_t column) const { return column; }
};

/// Both in the order of tokens: columns up to the row's own, and `ahead` more.
struct Causal {
    std::int64_t rows;  ///< of one matrix
    std::int64_t ahead;
    using OfRow = Seen<ColumnItself>;
    __device__ OfRow of_row(std::int64_t row) const { return {{}, row % rows + ahead}; }
};

/// In any order, which takes a division a column.
struct CausalByTokens {
    std::int64_t rows;  ///< of one matrix
    TokenRows queries, keys;
    using OfRow = Seen<TokenRows>;
    __device__ OfRow of_row(std::int64_t row) const {
        return {keys, queries[row % rows]};
    }
};

/// Those of the row, in one sweep after the other (Milakov & Gimelshein, arXiv
/// 1805.02867). Leaves the last sweep in `held`.
template <typename T, int kWidth, int kTeam, typename S, typename Mask>
__device__ Exponentials<T> exponentials(const Row<T, kWidth, kTeam>& row, const S* x,
                                        const Mask& mask,
                                        Pack<T, kWidth> (&held)[kHeld]) {
    Exponentials<T> of_thread;
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.each(base, [&](int k, std::int64_t pack) {
            held[k] = row.read(x, pack);
            mask.hide(held[k], pack * kWidth);
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
    double by;
    template <typename T>
    __device__ T operator()(T probability, std::int64_t row, std::int64_t column) const {
        return static_cast<T>(by) *
               (column == targets[row] ? probability - 1 : probability);
    }
};

template <typename S, int kWidth, int kTeam, bool kOnce, typename Masks, typename Finish>
__global__ void __launch_bounds__(kRowThreads)
    softmax_rows(S* y, const S* x, MatrixShape shape, Masks masks, Finish finish) {
    using T = Computed<S>;
    const Row<T, kWidth, kTeam> row(shape);
    if (!row.exists()) return;
    const auto mask = masks.of_row(row.index());
    Pack<T, kWidth> held[kHeld];
    const Exponentials<T> whole = exponentials(row, x, mask, held);
    const T inverse = 1 / whole.sum;
    const T off = whole.taken_off();
    const auto result = [&](T value, std::int64_t column) {
        if (!mask.sees(column)) return T{0};
        return finish(inverse * std::exp(value - off), row.index(), column);
    };
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        if (!kOnce)
            row.each(base,
                     [&](int k, std::int64_t pack) { held[k] = row.read(x, pack); });
        row.each(base, [&](int k, std::int64_t pack) {
            for (int lane = 0; lane < kWidth; ++lane)
                held[k].value[lane] = result(held[k].value[lane], pack * kWidth + lane);
            row.write(y, pack, held[k]);
        });
    }
}

template <typename S, int kWidth, int kTeam>
__global__ void __launch_bounds__(kRowThreads)
    cross_entropy_rows(Computed<S>* losses, const S* logits, const std::int32_t* targets,
                       MatrixShape shape) {
    using T = Computed<S>;
    const Row<T, kWidth, kTeam> row(shape);
    if (!row.exists()) return;
    Pack<T, kWidth> held[kHeld];
    const Exponentials<T> whole = exponentials(row, logits, Unmasked::OfRow{}, held);
    if (!row.first_thread()) return;
    const T logit = logits[row.index() * shape.columns + targets[row.index()]];
    losses[row.index()] = std::log(whole.sum) + (whole.largest - logit);
}

/// dx = y * (dy - sum(y * dy)).
template <typename S, int kWidth, int kTeam, bool kOnce>
__global__ void __launch_bounds__(kRowThreads)
    softmax_backward_rows(S* dx, const S* y, const S* dy, MatrixShape shape) {
    using T = Computed<S>;
    const Row<T, kWidth, kTeam> row(shape);
    if (!row.exists()) return;
    Pack<T, kWidth> held[kHeld], gradient[kHeld];
    const auto read = [&](int k, std::int64_t pack) {
        held[k] = row.read(y, pack);
        gradient[k] = row.read(dy, pack);
    };
    T along = 0;
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.each(base, read);
        row.each(base, [&](int k, std::int64_t) {
            for (int lane = 0; lane < kWidth; ++lane)
                along += held[k].value[lane] * gradient[k].value[lane];
        });
    }
    along = row.sum(along);
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        if (!kOnce) row.each(base, read);
        row.each(base, [&](int k, std::int64_t pack) {
            for (int lane = 0; lane < kWidth; ++lane)
                held[k].value[lane] *= gradient[k].value[lane] - along;
            row.write(dx, pack, held[k]);
        });
    }
}

template <typename Masks, typename Finish>
void launch_softmax_rows(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                         std::int64_t columns, const Masks& masks, const Finish& finish) {
    const MatrixShape shape{rows, columns, aligned(y, x)};
    with_type(y, [&]<typename S>(S) {
        with_plan_of<S>(shape, [&]<typename Plan>(Plan, int blocks) {
            launch(stream,
                   softmax_rows<S, Plan::kWidth, Plan::kTeam, Plan::kOnce, Masks, Finish>,
                   blocks, kRowThreads, y.as<S>(), x.as<S>(), shape, masks, finish);
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
    const auto with = [&](const auto& masks) {
        launch_softmax_rows(stream, y, x, rows, columns, masks, Itself{});
    };
    const auto in_order = [](const TokenRows& tokens) {
        return tokens.order == TokenOrder::contiguous;
    };
    if (in_order(causal.queries) && in_order(causal.keys))
        with(Causal{causal.rows, causal.queries.first - causal.keys.first});
    else
        with(CausalByTokens{causal.rows, causal.queries, causal.keys});
}

void launch_softmax_backward(cudaStream_t stream, Numbers dx, Numbers y, Numbers dy,
                             std::int64_t rows, std::int64_t columns) {
    with_type(dx, [&]<typename S>(S) {
        const MatrixShape shape{rows, columns, aligned(dx, y, dy)};
        with_plan_of<S>(shape, [&]<typename Plan>(Plan, int blocks) {
            launch(stream,
                   softmax_backward_rows<S, Plan::kWidth, Plan::kTeam, Plan::kOnce>,
                   blocks, kRowThreads, dx.as<S>(), y.as<S>(), dy.as<S>(), shape);
        });
    });
}

void launch_cross_entropy(cudaStream_t stream, Numbers losses, Numbers logits,
                          const std::int32_t* targets, std::int64_t rows,
                          std::int64_t columns) {
    with_type(logits, [&]<typename S>(S) {
        const MatrixShape shape{rows, columns, aligned(logits)};
        with_plan_of<S>(shape, [&]<typename Plan>(Plan, int blocks) {
            launch(stream, cross_entropy_rows<S, Plan::kWidth, Plan::kTeam>, blocks,
                   kRowThreads, losses.as<Computed<S>>(), logits.as<S>(), targets, shape);
        });
    });
}

void launch_cross_entropy_backward(cudaStream_t stream, Numbers d_logits, Numbers logits,
                                   const std::int32_t* targets, std::int64_t rows,
                                   std::int64_t columns, double by) {
    launch_softmax_rows(stream, d_logits, logits, rows, columns, Unmasked{},
                        LossGradient{targets, by});
}

}  // namespace lockstep::gpu

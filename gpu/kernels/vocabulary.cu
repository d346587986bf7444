#include <cmath>
#include <limits>

#include "gpu/kernels/each.cuh"
#include "gpu/kernels/rows.cuh"
#include "gpu/kernels/vocabulary.hpp"

namespace lockstep::gpu {

namespace {

/// Calls f(logit, whether it is an entry and not padding) for this thread's logits. f
/// should select between two results, so that no logit needs a branch.
template <typename S, typename T, typename Plan, typename F>
__device__ void each_entry(const Row<T, Plan>& row, const ShardLogits& shard,
                           const F& f) {
    const std::int64_t left = shard.whole - shard.first;
    const std::int64_t entries = left < shard.columns ? left : shard.columns;
    Pack<T, Plan::kWidth> held[kHeld];
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.read(base, held, shard.logits.as<const S>());
        row.each(base, [&](int k, std::int64_t pack) {
            for (int lane = 0; lane < Plan::kWidth; ++lane)
                f(held[k].value[lane], pack * Plan::kWidth + lane < entries);
        });
    }
}

template <typename S, typename Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    row_maxima(Computed<S>* maximum, ShardLogits shard, MatrixShape shape) {
    using T = Computed<S>;
    const Row<T, Plan> row(shape);
    if (!row.exists()) return;
    T largest = -std::numeric_limits<T>::infinity();
    each_entry<S>(row, shard, [&](T logit, bool is_entry) {
        largest = is_entry ? Larger{}(largest, logit) : largest;
    });
    largest = row.largest(largest);
    if (row.first_thread()) maximum[row.index()] = largest;
}

template <typename S, typename Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    parts_of_rows(Computed<S>* parts, ShardLogits shard, const std::int32_t* targets,
                  const Computed<S>* maximum, MatrixShape shape) {
    using T = Computed<S>;
    const Row<T, Plan> row(shape);
    if (!row.exists()) return;
    const T most = maximum[row.index()];
    T sum = 0;
    each_entry<S>(row, shard, [&](T logit, bool is_entry) {
        const T term = std::exp(logit - most);
        sum += is_entry ? term : T{0};
    });
    sum = row.sum(sum);
    if (!row.first_thread()) return;
    const std::int64_t own = targets[row.index()] - shard.first;
    const bool here = own >= 0 && own < shard.columns;
    parts[row.index()] = sum;
    parts[shard.rows + row.index()] =
        here ? T{shard.logits.as<S>()[row.index() * shard.columns + own]} : T{0};
}

struct LossOfParts {
    static constexpr int kWritten = 1;
    static constexpr bool kReadsFirst = false;
    template <typename T>
    __device__ void operator()(T& loss, const T& maximum, const T& sum,
                               const T& logit) const {
        loss = std::log(sum) + (maximum - logit);
    }
};

/// The numbers from which a row's gradient is computed.
template <typename T>
struct LossParts {
    const std::int32_t* targets;
    const T* maximum;
    const T* sums;
    T factor;
};

template <typename S, typename Plan>
__global__ void __launch_bounds__(Plan::kThreads, Plan::kBlocks)
    gradient_rows(S* d_logits, ShardLogits shard, LossParts<Computed<S>> parts,
                  MatrixShape shape) {
    using T = Computed<S>;
    const Row<T, Plan> row(shape);
    if (!row.exists()) return;
    const std::int64_t target = parts.targets[row.index()];
    const T most = parts.maximum[row.index()];
    const T inverse = 1 / parts.sums[row.index()];
    const auto gradient = [&](T logit, std::int64_t entry) {
        const T probability = inverse * std::exp(logit - most);
        const T result = parts.factor * (entry == target ? probability - 1 : probability);
        return entry < shard.whole ? result : T{0};
    };
    Pack<T, Plan::kWidth> held[kHeld];
    for (std::int64_t base = 0; base < row.packs(); base += row.kSweep) {
        row.read(base, held, shard.logits.as<const S>());
        row.each(base, [&](int k, std::int64_t pack) {
            for (int lane = 0; lane < Plan::kWidth; ++lane)
                held[k].value[lane] = gradient(held[k].value[lane],
                                               shard.first + pack * Plan::kWidth + lane);
            row.write(d_logits, pack, held[k]);
        });
    }
}

}  // namespace

void launch_row_maximum(cudaStream_t stream, Numbers maximum, const ShardLogits& shard) {
    with_type(shard.logits, [&]<typename S>(S) {
        const MatrixShape shape{shard.rows, shard.columns, aligned(shard.logits)};
        with_plan<S, Keeps::nothing>(shape, [&]<typename Plan>(Plan, int blocks) {
            launch(stream, row_maxima<S, Plan>, blocks, Plan::kThreads,
                   maximum.as<Computed<S>>(), shard, shape);
        });
    });
}

void launch_cross_entropy_parts(cudaStream_t stream, Numbers parts,
                                const ShardLogits& shard, const std::int32_t* targets,
                                Numbers maximum) {
    with_type(shard.logits, [&]<typename S>(S) {
        const MatrixShape shape{shard.rows, shard.columns, aligned(shard.logits)};
        with_plan<S, Keeps::nothing>(shape, [&]<typename Plan>(Plan, int blocks) {
            launch(stream, parts_of_rows<S, Plan>, blocks, Plan::kThreads,
                   parts.as<Computed<S>>(), shard, targets, maximum.as<Computed<S>>(),
                   shape);
        });
    });
}

void launch_cross_entropy_of_parts(cudaStream_t stream, Numbers losses, Numbers maximum,
                                   Numbers parts, std::int64_t rows) {
    with_type(losses, [&]<typename S>(S) {
        each(stream, rows, LossOfParts{}, losses.as<S>(), maximum.as<S>(), parts.as<S>(),
             parts.as<S>() + rows);
    });
}

void launch_cross_entropy_backward_of_parts(cudaStream_t stream, Numbers d_logits,
                                            const ShardLogits& shard,
                                            const std::int32_t* targets, Numbers maximum,
                                            Numbers parts, double factor) {
    with_type(d_logits, [&]<typename S>(S) {
        using T = Computed<S>;
        const MatrixShape shape{shard.rows, shard.columns,
                                aligned(d_logits, shard.logits)};
        with_plan<S, Keeps::nothing>(shape, [&]<typename Plan>(Plan, int blocks) {
            launch(stream, gradient_rows<S, Plan>, blocks, Plan::kThreads,
                   d_logits.as<S>(), shard,
                   LossParts<T>{targets, maximum.as<T>(), parts.as<T>(),
                                static_cast<T>(factor)},
                   shape);
        });
    });
}

}  // namespace lockstep::gpu

#include <cmath>

#include "gpu/kernels/attention_block.cuh"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

template <typename T>
struct Backward : AttentionInput<T> {
    HeadsOfOperand<const T> dy;
    HeadsOfOperand<T> d_queries, d_keys, d_values;
    const T* log_sum_exp;
    const T* dy_y;
};

/// The numbers of one query.
template <typename T>
struct QueryNumbers {
    T log_sum_exp;  ///< 0 for a query that sees no key
    T dy_y;

    /// Returns p = exp(score - log_sum_exp).
    __device__ T weight(T score) const { return std::exp(score - log_sum_exp); }
    /// Returns ds = factor p (dy v - dy_y).
    __device__ T d_score(T p, T dy_v, T factor) const {
        return factor * p * (dy_v - dy_y);
    }
};

template <typename T>
__device__ QueryNumbers<T> numbers_of(const Backward<T>& backward, std::int64_t batch,
                                      std::int64_t head, std::int64_t row) {
    const std::int64_t rows = backward.sight.query_rows;
    if (row >= rows) return {};
    const std::int64_t at = (batch * backward.heads + head) * rows + row;
    return {formulas::taken_off(backward.log_sum_exp[at]), backward.dy_y[at]};
}

/// In p, replaces the scores by their weights; in ds, the products of dy and v by the
/// scores' gradients. The patch's columns are queries from `first` on.
template <typename T>
__device__ void weigh(Patch<T>& p, Patch<T>& ds, const Backward<T>& backward,
                      std::int64_t batch, std::int64_t head, std::int64_t first) {
    const Spot spot;
#pragma unroll
    for (int j = 0; j < kPatch<T>; ++j) {
        const auto query = numbers_of(backward, batch, head, first + spot.column(j));
#pragma unroll
        for (int i = 0; i < kPatch<T>; ++i) {
            p[i][j] = query.weight(p[i][j]);
            ds[i][j] = query.d_score(p[i][j], ds[i][j], backward.factor);
        }
    }
}

/// For a tile of keys and their values: dk += ds^T q, dv += p^T dy. The tile's rows are
/// keys; its columns are the queries of every head that the keys serve.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kAttentionThreads, blocks_at_once<kColumns>(2))
    backward_of_keys(Backward<T> backward) {
    __shared__ TileMemory<T, kColumns> memory;
    const SightOf& sight = backward.sight;
    const std::int64_t m = sight.query_rows, n = sight.key_rows;
    const Owned own(backward.heads / backward.group, n, kTile<T>);
    const auto k = backward.keys.head(own.batch, own.head);
    const auto v = backward.values.head(own.batch, own.head);
    Results<T, kColumns> dk = {}, dv = {};
    if (threadIdx.x < kTile<T>)
        memory.row_tokens[threadIdx.x] = sight.key_token(own.first + threadIdx.x);

    const auto seen = [&](std::int64_t first) {
        return sight.of_tile(first, kTile<T>, own.first, kTile<T>, first + kTile<T> <= m);
    };
    for (std::int64_t i = 0; i < backward.group; ++i) {
        const std::int64_t head = own.head * backward.group + i;
        const auto q = backward.queries.head(own.batch, head);
        const auto dy = backward.dy.head(own.batch, head);
        const auto take_in = [&](std::int64_t first, bool masked) {
            if (masked && threadIdx.x < kTile<T>)
                memory.column_tokens[threadIdx.x] =
                    sight.query_token(first + threadIdx.x);
            Patch<T> p, ds;
            multiply(p, memory, k, own.first, q, first);
            scale(p, backward.factor);
            if (masked)
                hide(p, memory,
                     [](std::int64_t key, std::int64_t query) { return key > query; });
            multiply(ds, memory, v, own.first, dy, first);
            weigh(p, ds, backward, own.batch, head, first);
            share(memory, p);
            add_weighted(dv, memory, dy, first);
            share(memory, ds);
            add_weighted(dk, memory, q, first);
        };
        each_seen_tile<kTile<T>>(memory.sights, m, seen, take_in);
    }
    write<true, T, kColumns>(backward.d_keys.head(own.batch, own.head), dk, own.first);
    write<true, T, kColumns>(backward.d_values.head(own.batch, own.head), dv, own.first);
}

/// For a tile of queries: dq += ds k.
template <typename T, int kColumns>
__global__ void __launch_bounds__(kAttentionThreads, blocks_at_once<kColumns>(1))
    backward_of_queries(Backward<T> backward) {
    __shared__ TileMemory<T, kColumns> memory;
    const Spot spot;
    const SightOf& sight = backward.sight;
    const std::int64_t m = sight.query_rows, n = sight.key_rows;
    const Owned own = Owned(backward.heads, m, kTile<T>).last_first(m, kTile<T>);
    const auto q = backward.queries.head(own.batch, own.head);
    const auto dy = backward.dy.head(own.batch, own.head);
    const auto k = backward.keys.head(own.batch, own.head / backward.group);
    const auto v = backward.values.head(own.batch, own.head / backward.group);
    Results<T, kColumns> dq = {};
    QueryNumbers<T> queries[kPatch<T>];
#pragma unroll
    for (int i = 0; i < kPatch<T>; ++i)
        queries[i] =
            numbers_of(backward, own.batch, own.head, own.first + spot.row<T>(i));
    if (threadIdx.x < kTile<T>)
        memory.row_tokens[threadIdx.x] = sight.query_token(own.first + threadIdx.x);

    const auto seen = [&](std::int64_t first) {
        return sight.of_tile(own.first, kTile<T>, first, kTile<T>, first + kTile<T> <= n);
    };
    each_seen_tile<kTile<T>>(
        memory.sights, n, seen, [&](std::int64_t first, bool masked) {
            if (masked && threadIdx.x < kTile<T>)
                memory.column_tokens[threadIdx.x] = sight.key_token(first + threadIdx.x);
            Patch<T> p, ds;
            multiply(p, memory, q, own.first, k, first);
            scale(p, backward.factor);
            if (masked)
                hide(p, memory,
                     [](std::int64_t query, std::int64_t key) { return key > query; });
            multiply(ds, memory, dy, own.first, v, first);
#pragma unroll
            for (int i = 0; i < kPatch<T>; ++i)
#pragma unroll
                for (int j = 0; j < kPatch<T>; ++j)
                    ds[i][j] = queries[i].d_score(queries[i].weight(p[i][j]), ds[i][j],
                                                  backward.factor);
            share(memory, ds);
            add_weighted(dq, memory, k, first);
        });
    write<true, T, kColumns>(backward.d_queries.head(own.batch, own.head), dq, own.first);
}

template <typename T>
void launch_tiles(cudaStream_t stream, std::int64_t batches,
                  const Backward<T>& backward) {
    const auto blocks = [&](std::int64_t rows, std::int64_t heads) {
        return static_cast<int>(divided_up(rows, kTile<T>) * heads * batches);
    };
    const int of_keys = blocks(backward.sight.key_rows, backward.heads / backward.group);
    const int of_queries = blocks(backward.sight.query_rows, backward.heads);
    with_columns(backward.queries.width, [&]<int kColumns>(Constant<kColumns>) {
        launch(stream, backward_of_keys<T, kColumns>, of_keys, kAttentionThreads,
               backward);
        launch(stream, backward_of_queries<T, kColumns>, of_queries, kAttentionThreads,
               backward);
    });
}

}  // namespace

void launch_attend_backward(cudaStream_t stream, const AttentionGradients& gradients,
                            const AttentionOperands& operands, const BackwardRows& rows) {
    const int width = operands.shape.width;
    if (operands.queries.tensor.bytes == sizeof(Bf16))
        return launch_attend_backward_in_bf16(stream, gradients, operands, rows);
    with_wide_type(rows.dy_y, [&]<typename T>(T) {
        const Backward<T> backward{AttentionInput<T>(operands),
                                   HeadsOfOperand<const T>(rows.dy, width),
                                   HeadsOfOperand<T>(gradients.queries, width),
                                   HeadsOfOperand<T>(gradients.keys, width),
                                   HeadsOfOperand<T>(gradients.values, width),
                                   rows.log_sum_exp.as<T>(),
                                   rows.dy_y.as<T>()};
        launch_tiles(stream, operands.shape.batches, backward);
    });
}

}  // namespace lockstep::gpu

#include <limits>

#include "gpu/kernels/attention_bf16.cuh"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

/// Returns exp(score - off), with an error of a few units in f32's last place.
__device__ float exponential(float score, float off) {
    return __expf(score - off);
}

__device__ bool key_is_later(std::int64_t query, std::int64_t key) {
    return key > query;
}

struct Forward : AttentionInput<Bf16> {
    HeadsOfOperand<float> y;
    float* maximum;
    float* sum;
};

template <int kWidth, int kColumns>
struct ForwardMemory {
    SharedRows<kOwnRows, kWidth> queries;
    SharedRows<kColumns, kWidth> keys[2], values[2];
    std::int64_t row_tokens[kOwnRows];
    std::int64_t column_tokens[2][kColumns];
    Sight sights[kCoreThreads];
};

/// Applies op to the values of the four threads that share rows; all get the same bits.
template <typename Op>
__device__ float across(float value, const Op& op) {
    value = op(value, of_other_lane(value, 1));
    return op(value, of_other_lane(value, 2));
}

/// The online softmax of a warp's rows; each thread has two rows.
template <int kWidth>
struct OnlineSoftmax {
    float maximum[2];
    /// Each row's sum over the thread's columns; the first thread adds the state's sum.
    float sum[2];
    CoreSums<kWidth> y = {};

    __device__ OnlineSoftmax(const HeadMatrix<float>& from, const float* maxima,
                             const float* sums, std::int64_t first) {
        each_part(y, from, first, [&](const float* at, float* part) {
            const auto pack = load<2>(at, from.vectors);
            part[0] = pack.value[0];
            part[1] = pack.value[1];
        });
        const CoreSpot spot;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const std::int64_t row = first + spot.row(i);
            const bool is_there = row < from.rows;
            maximum[i] = is_there ? maxima[row] : -std::numeric_limits<float>::infinity();
            sum[i] = is_there && spot.lane % 4 == 0 ? sums[row] : 0;
        }
    }

    __device__ void write_to(const HeadMatrix<float>& to, float* maxima, float* sums,
                             std::int64_t first) {
        each_part(y, to, first, [&](float* at, const float* part) {
            store(at, Pack<float, 2>{part[0], part[1]}, to.vectors);
        });
        const CoreSpot spot;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const std::int64_t row = first + spot.row(i);
            const float whole = across(sum[i], Plus{});
            if (spot.lane % 4 != 0 || row >= to.rows) continue;
            maxima[row] = maximum[i];
            sums[row] = whole;
        }
    }

    /// Replaces each score by exp(score - maximum), with the maximum of all scores so
    /// far.
    template <int kEights>
    __device__ void take_in(float (&scores)[kEights][4]) {
        float larger[2] = {maximum[0], maximum[1]};
        each_number(scores, [&](float& score, int i, int) {
            larger[i] = Larger{}(larger[i], score);
        });
        float rescaling[2], off[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            larger[i] = across(larger[i], Larger{});
            rescaling[i] = formulas::rescaling(maximum[i], larger[i]);
            off[i] = formulas::taken_off(larger[i]);
            maximum[i] = larger[i];
            sum[i] *= rescaling[i];
        }
        each_number(scores, [&](float& score, int i, int) {
            score = exponential(score, off[i]);
            sum[i] += score;
        });
        each_number(y, [&](float& value, int i, int) { value *= rescaling[i]; });
    }
};

template <int kWidth, int kColumns>
__global__ void __launch_bounds__(kCoreThreads, 2) attend_in_bf16(Forward forward) {
    auto& memory = block_memory<ForwardMemory<kWidth, kColumns>>();
    const SightOf& sight = forward.sight;
    const std::int64_t m = sight.query_rows, n = sight.key_rows;
    const Owned own = Owned(forward.heads, m, kOwnRows).last_first(m, kOwnRows);
    const auto k = forward.keys.head(own.batch, own.head / forward.group);
    const auto v = forward.values.head(own.batch, own.head / forward.group);
    const auto y = forward.y.head(own.batch, own.head);
    const std::int64_t numbers = (own.batch * forward.heads + own.head) * m;
    OnlineSoftmax<kWidth> online(y, forward.maximum + numbers, forward.sum + numbers,
                                 own.first);
    memory.queries.start_loading(forward.queries.head(own.batch, own.head), own.first);
    if (threadIdx.x < kOwnRows)
        memory.row_tokens[threadIdx.x] = sight.query_token(own.first + threadIdx.x);

    const auto seen = [&](std::int64_t first) {
        return sight.of_tile(own.first, kOwnRows, first, kColumns, first + kColumns <= n);
    };
    const auto load = [&](int at, const SeenTile& tile) {
        memory.keys[at].start_loading(k, tile.first);
        memory.values[at].start_loading(v, tile.first);
        if (tile.masked && threadIdx.x < kColumns)
            memory.column_tokens[at][threadIdx.x] =
                sight.key_token(tile.first + threadIdx.x);
    };
    const auto use = [&](int at, const SeenTile& tile) {
        CoreSums<kColumns> scores;
        multiply(scores, memory.queries, memory.keys[at]);
        each_number(scores, [&](float& score, int, int) { score *= forward.factor; });
        if (tile.masked)
            hide(scores, memory.row_tokens, memory.column_tokens[at], key_is_later);
        online.take_in(scores);
        add_weighted(online.y, scores, memory.values[at]);
    };
    SeenTiles<kColumns, kCoreThreads, decltype(seen)> tiles(memory.sights, n, seen);
    each_tile_ahead(tiles, load, use);
    online.write_to(y, forward.maximum + numbers, forward.sum + numbers, own.first);
}

struct Backward : AttentionInput<Bf16> {
    HeadsOfOperand<const Bf16> dy;
    HeadsOfOperand<Bf16> d_queries, d_keys, d_values;
    const float* log_sum_exp;
    const float* dy_y;

    /// Returns the index of a head's first query.
    __device__ std::int64_t numbers(std::int64_t batch, std::int64_t head) const {
        return (batch * heads + head) * sight.query_rows;
    }
};

/// The numbers of one query.
struct QueryNumbers {
    float off, dy_y;

    QueryNumbers() = default;
    __device__ QueryNumbers(const Backward& backward, std::int64_t numbers,
                            std::int64_t row)
        : off(0), dy_y(0) {
        if (row >= backward.sight.query_rows) return;
        off = formulas::taken_off(backward.log_sum_exp[numbers + row]);
        dy_y = backward.dy_y[numbers + row];
    }
    /// Replaces the score by its weight p, and dy v by factor p (dy v - dy_y).
    __device__ void weigh(float& score, float& dy_v, float factor) const {
        score = exponential(score, off);
        dy_v = factor * score * (dy_v - dy_y);
    }
};

template <int kWidth, int kColumns>
struct BackwardMemory {
    SharedRows<kOwnRows, kWidth> own[2];
    SharedRows<kColumns, kWidth> others[2][2];
    QueryNumbers queries[2][kColumns];
    std::int64_t row_tokens[kOwnRows];
    std::int64_t column_tokens[2][kColumns];
    Sight sights[kCoreThreads];
};

/// For the tile at `at`: sets the scores, and sets dy_v to the products of dy and v.
template <int kEights, int kWidth, int kColumns>
__device__ void multiply_tile(float (&scores)[kEights][4], float (&dy_v)[kEights][4],
                              const BackwardMemory<kWidth, kColumns>& memory, int at,
                              float factor) {
    multiply(scores, memory.own[0], memory.others[at][0]);
    multiply(dy_v, memory.own[1], memory.others[at][1]);
    each_number(scores, [&](float& score, int, int) { score *= factor; });
}

/// For a tile of keys and their values: dk += ds^T q, dv += p^T dy. The tile's rows are
/// keys; its columns are the queries of every head that the keys serve.
template <int kWidth, int kColumns>
__global__ void __launch_bounds__(kCoreThreads, 2)
    backward_of_keys_in_bf16(Backward backward) {
    auto& memory = block_memory<BackwardMemory<kWidth, kColumns>>();
    const SightOf& sight = backward.sight;
    const std::int64_t m = sight.query_rows, n = sight.key_rows;
    const Owned own(backward.heads / backward.group, n, kOwnRows);
    memory.own[0].start_loading(backward.keys.head(own.batch, own.head), own.first);
    memory.own[1].start_loading(backward.values.head(own.batch, own.head), own.first);
    if (threadIdx.x < kOwnRows)
        memory.row_tokens[threadIdx.x] = sight.key_token(own.first + threadIdx.x);
    CoreSums<kWidth> dk = {}, dv = {};

    const auto seen = [&](std::int64_t first) {
        return sight.of_tile(first, kColumns, own.first, kOwnRows, first + kColumns <= m);
    };
    for (std::int64_t i = 0; i < backward.group; ++i) {
        const std::int64_t head = own.head * backward.group + i;
        const std::int64_t numbers = backward.numbers(own.batch, head);
        const auto q = backward.queries.head(own.batch, head);
        const auto dy = backward.dy.head(own.batch, head);
        const auto load = [&](int at, const SeenTile& tile) {
            memory.others[at][0].start_loading(q, tile.first);
            memory.others[at][1].start_loading(dy, tile.first);
            if (threadIdx.x >= kColumns) return;
            const std::int64_t query = tile.first + threadIdx.x;
            memory.queries[at][threadIdx.x] = QueryNumbers(backward, numbers, query);
            if (tile.masked)
                memory.column_tokens[at][threadIdx.x] = sight.query_token(query);
        };
        const auto use = [&](int at, const SeenTile& tile) {
            CoreSums<kColumns> p, ds;
            multiply_tile(p, ds, memory, at, backward.factor);
            if (tile.masked)
                hide(p, memory.row_tokens, memory.column_tokens[at],
                     [](std::int64_t key, std::int64_t query) {
                         return key_is_later(query, key);
                     });
            const CoreSpot spot;
#pragma unroll
            for (int eight = 0; eight < kColumns / 8; ++eight)
#pragma unroll
                for (int k = 0; k < 4; ++k)
                    memory.queries[at][spot.column(eight) + k % 2].weigh(
                        p[eight][k], ds[eight][k], backward.factor);
            add_weighted(dv, p, memory.others[at][1]);
            add_weighted(dk, ds, memory.others[at][0]);
        };
        SeenTiles<kColumns, kCoreThreads, decltype(seen)> tiles(memory.sights, m, seen);
        each_tile_ahead(tiles, load, use);
    }
    add(backward.d_keys.head(own.batch, own.head), dk, own.first);
    add(backward.d_values.head(own.batch, own.head), dv, own.first);
}

/// For a tile of queries: dq += ds k.
template <int kWidth, int kColumns>
__global__ void __launch_bounds__(kCoreThreads, 2)
    backward_of_queries_in_bf16(Backward backward) {
    auto& memory = block_memory<BackwardMemory<kWidth, kColumns>>();
    const CoreSpot spot;
    const SightOf& sight = backward.sight;
    const std::int64_t m = sight.query_rows, n = sight.key_rows;
    const Owned own = Owned(backward.heads, m, kOwnRows).last_first(m, kOwnRows);
    const auto k = backward.keys.head(own.batch, own.head / backward.group);
    const auto v = backward.values.head(own.batch, own.head / backward.group);
    const std::int64_t numbers = backward.numbers(own.batch, own.head);
    memory.own[0].start_loading(backward.queries.head(own.batch, own.head), own.first);
    memory.own[1].start_loading(backward.dy.head(own.batch, own.head), own.first);
    if (threadIdx.x < kOwnRows)
        memory.row_tokens[threadIdx.x] = sight.query_token(own.first + threadIdx.x);
    const QueryNumbers queries[2] = {{backward, numbers, own.first + spot.row(0)},
                                     {backward, numbers, own.first + spot.row(1)}};
    CoreSums<kWidth> dq = {};

    const auto seen = [&](std::int64_t first) {
        return sight.of_tile(own.first, kOwnRows, first, kColumns, first + kColumns <= n);
    };
    const auto load = [&](int at, const SeenTile& tile) {
        memory.others[at][0].start_loading(k, tile.first);
        memory.others[at][1].start_loading(v, tile.first);
        if (tile.masked && threadIdx.x < kColumns)
            memory.column_tokens[at][threadIdx.x] =
                sight.key_token(tile.first + threadIdx.x);
    };
    const auto use = [&](int at, const SeenTile& tile) {
        CoreSums<kColumns> p, ds;
        multiply_tile(p, ds, memory, at, backward.factor);
        if (tile.masked)
            hide(p, memory.row_tokens, memory.column_tokens[at], key_is_later);
#pragma unroll
        for (int eight = 0; eight < kColumns / 8; ++eight)
#pragma unroll
            for (int j = 0; j < 4; ++j)
                queries[j / 2].weigh(p[eight][j], ds[eight][j], backward.factor);
        add_weighted(dq, ds, memory.others[at][0]);
    };
    SeenTiles<kColumns, kCoreThreads, decltype(seen)> tiles(memory.sights, n, seen);
    each_tile_ahead(tiles, load, use);
    add(backward.d_queries.head(own.batch, own.head), dq, own.first);
}

/// Calls body(width, columns of a backward tile); both are constants. Wider heads have
/// fewer columns, so that two gradients and two products fit into the registers.
template <typename Body>
void with_core_width(int width, const Body& body) {
    if (width == 64)
        body(Constant<64>(), Constant<64>());
    else
        body(Constant<128>(), Constant<32>());
}

int blocks_of(const AttentionShape& shape, std::int64_t heads, std::int64_t rows) {
    return static_cast<int>(divided_up(rows, kOwnRows) * heads * shape.batches);
}

}  // namespace

bool attends_in_bf16(std::int64_t width) {
    if (width != 64 && width != 128) return false;
    static const bool has_cores = [] {
        constexpr int kAmpere = 80;
        const auto* const kernel = reinterpret_cast<const void*>(attend_in_bf16<64, 64>);
        cudaFuncAttributes of_code{};
        const cudaError_t result = cudaFuncGetAttributes(&of_code, kernel);
        if (result != cudaSuccess) fail_launch(result, kernel);
        return of_code.ptxVersion >= kAmpere;
    }();
    return has_cores;
}

void launch_attend_in_bf16(cudaStream_t stream, const OnlineRows& state,
                           const AttentionOperands& operands) {
    const AttentionShape& shape = operands.shape;
    const Forward forward{AttentionInput<Bf16>(operands),
                          HeadsOfOperand<float>(state.y, shape.width),
                          state.maximum.as<float>(), state.sum.as<float>()};
    const int blocks = blocks_of(shape, shape.heads, operands.queries.rows);
    constexpr int kColumns = 64;
    with_core_width(
        shape.width, [&]<int kWidth, int kOther>(Constant<kWidth>, Constant<kOther>) {
            launch_with_memory<ForwardMemory<kWidth, kColumns>>(
                stream, attend_in_bf16<kWidth, kColumns>, blocks, kCoreThreads, forward);
        });
}

void launch_attend_backward_in_bf16(cudaStream_t stream,
                                    const AttentionGradients& gradients,
                                    const AttentionOperands& operands,
                                    const BackwardRows& rows) {
    const AttentionShape& shape = operands.shape;
    using Input = AttentionInput<Bf16>;
    const Backward backward{
        Input(operands),
        HeadsOfOperand<const Bf16>(rows.dy, shape.width, Input::kIn16Bytes),
        HeadsOfOperand<Bf16>(gradients.queries, shape.width),
        HeadsOfOperand<Bf16>(gradients.keys, shape.width),
        HeadsOfOperand<Bf16>(gradients.values, shape.width),
        rows.log_sum_exp.as<float>(),
        rows.dy_y.as<float>()};
    with_core_width(shape.width, [&]<int kWidth, int kColumns>(Constant<kWidth>,
                                                               Constant<kColumns>) {
        using Memory = BackwardMemory<kWidth, kColumns>;
        launch_with_memory<Memory>(
            stream, backward_of_keys_in_bf16<kWidth, kColumns>,
            blocks_of(shape, shape.heads / shape.group, operands.keys.rows), kCoreThreads,
            backward);
        launch_with_memory<Memory>(stream, backward_of_queries_in_bf16<kWidth, kColumns>,
                                   blocks_of(shape, shape.heads, operands.queries.rows),
                                   kCoreThreads, backward);
    });
}

}  // namespace lockstep::gpu

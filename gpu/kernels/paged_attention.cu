#include <cmath>
#include <limits>

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/paged_attention.hpp"
#include "gpu/kernels/team.cuh"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

constexpr int kPagedThreads = 128;
constexpr int kPagedWarps = kPagedThreads / kWarp;
/// A thread has columns `lane`, `lane` + 32, …
constexpr int kHeldColumns = kMostPagedWidth / kWarp;
constexpr int kHeldTurned = kMostTurnedWidth / kWarp;

/// In the sequence of row `row`, returns the place of token `token` on the pages.
__device__ std::int64_t place_on_pages(const PagedRows& rows, std::int64_t row,
                                       std::int64_t token) {
    const std::int64_t page = rows.pages[rows.rows[2 * row + 1] + token / rows.of_page];
    return page * rows.of_page + token % rows.of_page;
}

template <typename S>
__global__ void __launch_bounds__(kPagedThreads)
    store_rows(S* pages, const S* source, PagedRows rows, std::int64_t columns,
               std::int64_t pitch, std::int64_t from) {
    const std::int64_t number = std::int64_t{blockIdx.x} * kPagedThreads + threadIdx.x;
    const std::int64_t row = number / columns, column = number - row * columns;
    if (row >= rows.count) return;
    const std::int64_t place = place_on_pages(rows, row, rows.rows[2 * row]);
    pages[place * columns + column] = source[row * pitch + from + column];
}

/// Calls f(i, column) for this thread's columns of a head.
template <int kHeld = kHeldColumns, typename F>
__device__ void each_column(int width, const F& f) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int i = 0; i < kHeld; ++i)
        if (i * kWarp + lane < width) f(i, i * kWarp + lane);
}

template <typename S>
__global__ void __launch_bounds__(kPagedThreads)
    attend_rows(PagedOperands operands, PagedRows rows) {
    using T = Computed<S>;
    const std::int64_t number =
        std::int64_t{blockIdx.x} * kPagedWarps + threadIdx.x / kWarp;
    const std::int64_t row = number / operands.heads,
                       head = number - row * operands.heads;
    if (row >= rows.count) return;
    const std::int64_t line = row / operands.batches,
                       batch = row - line * operands.batches;
    const auto row_of = [&](const HeadRows& heads, int width) {
        return heads.tensor.as<S>() + heads.first + line * heads.pitch +
               batch * heads.batch + head * width;
    };
    const auto on_pages = [&](const HeadRows& heads, std::int64_t place, int width) {
        return heads.tensor.as<const S>() + heads.first + place * heads.batch +
               head / operands.group * width;
    };

    T query[kHeldColumns], turned[kHeldTurned], sums[kHeldColumns];
    const S* own = row_of(operands.queries, operands.width);
    each_column(operands.width, [&](int i, int column) { query[i] = T(own[column]); });
    const S* also = row_of(operands.turned_queries, operands.turned_width);
    each_column<kHeldTurned>(operands.turned_width,
                             [&](int i, int column) { turned[i] = T(also[column]); });
    each_column(operands.value_width, [&](int i, int) { sums[i] = 0; });
    T maximum = -std::numeric_limits<T>::infinity(), sum = 0;
    for (std::int64_t token = 0; token <= rows.rows[2 * row]; ++token) {
        const std::int64_t place = place_on_pages(rows, row, token);
        const S* key = on_pages(operands.keys, place, operands.width);
        T score = 0;
        each_column(operands.width,
                    [&](int i, int column) { score += query[i] * T(key[column]); });
        const S* second = on_pages(operands.turned_keys, place, operands.turned_width);
        each_column<kHeldTurned>(operands.turned_width, [&](int i, int column) {
            score += turned[i] * T(second[column]);
        });
        score = static_cast<T>(operands.factor) * combined<kWarp>(score, Plus{});
        const T larger = maximum < score ? score : maximum;
        const T rescaling = formulas::rescaling(maximum, larger);
        const T weight = std::exp(score - formulas::taken_off(larger));
        sum = rescaling * sum + weight;
        maximum = larger;
        const S* value = on_pages(operands.values, place, operands.value_width);
        each_column(operands.value_width, [&](int i, int column) {
            sums[i] = rescaling * sums[i] + weight * T(value[column]);
        });
    }
    S* y = row_of(operands.y, operands.value_width);
    each_column(operands.value_width,
                [&](int i, int column) { y[column] = static_cast<S>(sums[i] / sum); });
}

}  // namespace

void launch_store_pages(cudaStream_t stream, Numbers pages, Numbers source,
                        const PagedRows& rows, std::int64_t columns, std::int64_t pitch,
                        std::int64_t from) {
    with_type(pages, [&]<typename S>(S) {
        launch(stream, store_rows<S>,
               static_cast<int>(divided_up(rows.count * columns, kPagedThreads)),
               kPagedThreads, pages.as<S>(), source.as<const S>(), rows, columns, pitch,
               from);
    });
}

void launch_attend_pages(cudaStream_t stream, const PagedOperands& operands,
                         const PagedRows& rows) {
    with_type(operands.y.tensor, [&]<typename S>(S) {
        launch(stream, attend_rows<S>,
               static_cast<int>(divided_up(rows.count * operands.heads, kPagedWarps)),
               kPagedThreads, operands, rows);
    });
}

}  // namespace lockstep::gpu

#include <algorithm>
#include <numeric>
#include <vector>

#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::sim {

template <>
void CpuDevice::compute(const ops::Embedding& op) {
    const std::int64_t width = op.table.shape().columns();
    const auto* id = op.ids.data<std::int32_t>();
    with_number(op.table.dtype(), [&]<typename T>(T) {
        for (std::int64_t i = 0; i < op.ids.elements(); ++i) {
            const std::int64_t own = id[i] - op.shard.first;
            T* row = op.rows.data<T>() + i * width;
            if (own >= 0 && own < op.table.shape().matrix_rows())
                std::copy_n(op.table.data<T>() + own * width, width, row);
            else
                std::fill_n(row, width, T{0});
        }
    });
}

template <>
void CpuDevice::compute(const ops::EmbeddingBackward& op) {
    const std::int64_t width = op.d_table.shape().columns();
    const auto* id = op.ids.data<std::int32_t>();
    with_real(op.d_table.dtype(), [&]<typename T>(T) {
        for (std::int64_t i = 0; i < op.ids.elements(); ++i) {
            const std::int64_t own = id[i] - op.shard.first;
            if (own < 0 || own >= op.d_table.shape().matrix_rows()) continue;
            T* row = op.d_table.data<T>() + own * width;
            const T* gradient = op.dy.data<T>() + i * width;
            map_lanes(
                width, row,
                [](const Lane<T>& a, const Lane<T>& b) -> Lane<T> { return a + b; },
                static_cast<const T*>(row), gradient);
        }
    });
}

template <>
void CpuDevice::compute(const ops::TakeRows& op) {
    compute(op.lookup());
}

template <>
void CpuDevice::compute(const ops::AddRows& op) {
    compute(op.lookup_backward());
}

namespace {

/// Calls visit(place in the list, place in the whole) for each index of a column.
template <typename Visit>
void each_by_index(const Tensor& index, const Tensor& whole, Visit&& visit) {
    const auto* column = index.data<std::int32_t>();
    const std::int64_t many = index.shape().columns(), columns = whole.shape().columns();
    for (std::int64_t place = 0; place < index.elements(); ++place)
        visit(place, place / many * columns + column[place]);
}

}  // namespace

template <>
void CpuDevice::compute(const ops::TakeColumns& op) {
    with_real(op.source.dtype(), [&]<typename T>(T) {
        each_by_index(op.index, op.source, [&](std::int64_t to, std::int64_t from) {
            op.destination.data<T>()[to] = op.source.data<T>()[from];
        });
    });
}

template <>
void CpuDevice::compute(const ops::AddColumns& op) {
    with_real(op.source.dtype(), [&]<typename T>(T) {
        each_by_index(op.index, op.destination, [&](std::int64_t from, std::int64_t to) {
            op.destination.data<T>()[to] += op.source.data<T>()[from];
        });
    });
}

namespace {

using Columns = std::vector<std::int32_t>;

/// Brings the columns of the k largest values to the front, the largest first.
template <typename T>
void bring_to_front(Columns& columns, const T* x, std::int64_t k) {
    std::partial_sort(columns.begin(), columns.begin() + k, columns.end(),
                      [x](std::int32_t i, std::int32_t j) {
                          return formulas::comes_first(x[i], i, x[j], j);
                      });
}

Columns columns_from(std::int64_t first, std::int64_t count) {
    Columns columns(static_cast<std::size_t>(count));
    std::iota(columns.begin(), columns.end(), static_cast<std::int32_t>(first));
    return columns;
}

/// Returns the columns of the groups that a row chooses.
template <typename T>
Columns columns_of_chosen(const ColumnGroups& groups, const T* x, std::int64_t columns) {
    if (groups.count == 1) return columns_from(0, columns);
    const std::int64_t width = columns / groups.count;
    std::vector<T> sums;
    for (std::int64_t group = 0; group < groups.count; ++group) {
        Columns own = columns_from(group * width, width);
        bring_to_front(own, x, groups.best);
        sums.push_back(
            std::accumulate(own.begin(), own.begin() + groups.best, T{0},
                            [x](T sum, std::int32_t at) { return sum + x[at]; }));
    }
    Columns order = columns_from(0, groups.count);
    bring_to_front(order, sums.data(), groups.chosen);
    Columns chosen;
    for (std::int64_t i = 0; i < groups.chosen; ++i)
        for (std::int64_t at = 0; at < width; ++at)
            chosen.push_back(static_cast<std::int32_t>(order[i] * width + at));
    return chosen;
}

}  // namespace

template <>
void CpuDevice::compute(const ops::TopK& op) {
    const std::int64_t columns = op.x.shape().columns();
    with_real(op.x.dtype(), [&]<typename T>(T) {
        T* value = op.values.data<T>();
        auto* index = op.indices.data<std::int32_t>();
        for (std::int64_t row = 0; row < op.x.shape().matrix_rows(); ++row) {
            const T* x = op.x.data<T>() + row * columns;
            Columns order = columns_of_chosen(op.groups, x, columns);
            bring_to_front(order, x, op.k);
            for (std::int64_t i = 0; i < op.k; ++i) {
                *index++ = order[i];
                *value++ = x[order[i]];
            }
        }
    });
}

template <>
void CpuDevice::compute(const ops::SortIds& op) {
    const auto* id = op.ids.data<std::int32_t>();
    auto* count = op.counts.data<std::int32_t>();
    auto* order = op.order.data<std::int32_t>();
    auto* row = op.rows.data<std::int32_t>();
    std::fill_n(count, op.counts.elements(), 0);
    for (std::int64_t place = 0; place < op.ids.elements(); ++place)
        ++count[id[place]];
    // An id's next place is after the places of lower ids and its own earlier places.
    std::vector<std::int32_t> next(op.counts.elements());
    std::exclusive_scan(count, count + op.counts.elements(), next.begin(), 0);
    const std::int64_t rows = op.ids.shape().matrix_rows(),
                       columns = op.ids.shape().columns();
    for (std::int64_t i = 0; i < op.ids.elements(); ++i) {
        const std::int64_t place = op.by_columns ? i % rows * columns + i / rows : i;
        const std::int32_t to = next[id[place]]++;
        order[to] = static_cast<std::int32_t>(place);
        row[to] = static_cast<std::int32_t>(place / columns);
    }
}

template <>
void CpuDevice::compute(const ops::RandomUniform& op) {
    with_real(op.destination.dtype(), [&]<typename T>(T) {
        ops::each_run(
            op.destination, op.part, [&](const Tensor& run, std::int64_t first) {
                T* out = run.data<T>();
                for (std::int64_t i = 0; i < run.elements(); ++i) {
                    const double u =
                        op.stream.uniform(static_cast<std::uint64_t>(first + i));
                    out[i] = static_cast<T>(op.low + (op.high - op.low) * u);
                }
            });
    });
}

template <>
void CpuDevice::compute(const ops::RandomNormal& op) {
    with_real(op.destination.dtype(), [&]<typename T>(T) {
        ops::each_run(op.destination, op.part,
                      [&](const Tensor& run, std::int64_t first) {
                          T* out = run.data<T>();
                          for (std::int64_t i = 0; i < run.elements(); ++i) {
                              const double z =
                                  op.stream.normal(static_cast<std::uint64_t>(first + i));
                              out[i] = static_cast<T>(op.mean + op.deviation * z);
                          }
                      });
    });
}

template <>
void CpuDevice::compute(const ops::Dropout& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        ops::each_run(op.y, op.part, [&](const Tensor& run, std::int64_t first) {
            T* y = run.data<T>();
            const T* x = op.x.data<T>() + (y - op.y.data<T>());
            for (std::int64_t i = 0; i < run.elements(); ++i)
                y[i] = formulas::dropout(
                    x[i], op.stream.uniform(static_cast<std::uint64_t>(first + i)),
                    op.probability);
        });
    });
}

}  // namespace lockstep::sim

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
    with_real(op.table.dtype(), [&]<typename T>(T) {
        for (std::int64_t i = 0; i < op.ids.elements(); ++i) {
            const std::int64_t own = id[i] - op.shard.first;
            T* row = op.rows.data<T>() + i * width;
            if (own >= 0 && own < op.table.shape().rows())
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
            if (own < 0 || own >= op.d_table.shape().rows()) continue;
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

template <>
void CpuDevice::compute(const ops::TopK& op) {
    const std::int64_t columns = op.x.shape().columns();
    std::vector<std::int32_t> order(columns);
    with_real(op.x.dtype(), [&]<typename T>(T) {
        T* value = op.values.data<T>();
        auto* index = op.indices.data<std::int32_t>();
        for (std::int64_t row = 0; row < op.x.shape().rows(); ++row) {
            const T* x = op.x.data<T>() + row * columns;
            std::iota(order.begin(), order.end(), 0);
            std::partial_sort(order.begin(), order.begin() + op.k, order.end(),
                              [x](std::int32_t i, std::int32_t j) {
                                  return formulas::comes_first(x[i], i, x[j], j);
                              });
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
    // The next place of an id comes behind those of lower ids, and its own earlier ones.
    std::vector<std::int32_t> next(op.counts.elements());
    std::exclusive_scan(count, count + op.counts.elements(), next.begin(), 0);
    for (std::int64_t place = 0; place < op.ids.elements(); ++place) {
        const std::int32_t to = next[id[place]]++;
        order[to] = static_cast<std::int32_t>(place);
        row[to] = static_cast<std::int32_t>(place / op.ids.shape().columns());
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

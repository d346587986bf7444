#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::sim {

void Device::check_indices(const Tensor& indices, std::int64_t bound) {
    const auto* index = indices.data<std::int32_t>();
    for (std::int64_t i = 0; i < indices.elements(); ++i)
        if (index[i] < 0 || index[i] >= bound) throw IndexOutside{i, index[i]};
}

void Device::do_embedding(const Tensor& rows, const Tensor& table, const Tensor& ids,
                          const VocabularyShard& shard) {
    const std::int64_t width = table.shape().columns();
    check_indices(ids, shard.whole);
    const auto* id = ids.data<std::int32_t>();
    with_real(table.dtype(), [&]<typename T>(T) {
        for (std::int64_t i = 0; i < ids.elements(); ++i) {
            const std::int64_t own = id[i] - shard.first;
            T* row = rows.data<T>() + i * width;
            if (own >= 0 && own < table.shape().rows())
                std::copy_n(table.data<T>() + own * width, width, row);
            else
                std::fill_n(row, width, T{0});
        }
    });
}

void Device::do_embedding_backward(const Tensor& d_table, const Tensor& ids,
                                   const Tensor& dy, const VocabularyShard& shard) {
    const std::int64_t width = d_table.shape().columns();
    check_indices(ids, shard.whole);
    const auto* id = ids.data<std::int32_t>();
    with_real(d_table.dtype(), [&]<typename T>(T) {
        for (std::int64_t i = 0; i < ids.elements(); ++i) {
            const std::int64_t own = id[i] - shard.first;
            if (own < 0 || own >= d_table.shape().rows()) continue;
            T* row = d_table.data<T>() + own * width;
            const T* gradient = dy.data<T>() + i * width;
            map_lanes(
                width, row,
                [](const Lane<T>& a, const Lane<T>& b) -> Lane<T> { return a + b; },
                static_cast<const T*>(row), gradient);
        }
    });
}

void Device::do_random_uniform(const Tensor& destination, RandomStream stream, double low,
                               double high, std::int64_t offset) {
    with_real(destination.dtype(), [&]<typename T>(T) {
        T* out = destination.data<T>();
        for (std::int64_t i = 0; i < destination.elements(); ++i) {
            const double u = stream.uniform(static_cast<std::uint64_t>(offset + i));
            out[i] = static_cast<T>(low + (high - low) * u);
        }
    });
}

void Device::do_random_normal(const Tensor& destination, RandomStream stream, double mean,
                              double deviation, std::int64_t offset) {
    with_real(destination.dtype(), [&]<typename T>(T) {
        T* out = destination.data<T>();
        for (std::int64_t i = 0; i < destination.elements(); ++i) {
            const double z = stream.normal(static_cast<std::uint64_t>(offset + i));
            out[i] = static_cast<T>(mean + deviation * z);
        }
    });
}

}  // namespace lockstep::sim

#include <fmt/format.h>

#include "gpu/device.hpp"
#include "gpu/kernels/move.hpp"
#include "gpu/kernels/random.hpp"
#include "gpu/kernels/scatter.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::gpu {

void Device::check_indices(const Tensor& indices, std::int64_t bound) {
    const Tensor workspace = workspace_for_reduction();
    launch_first_outside(stream_.get(), workspace.bytes_begin(), first_outside_.get(),
                         indices.data<const std::int32_t>(), indices.elements(), bound);
    synchronize();
    if (first_outside_->position >= 0)
        throw IndexOutside{first_outside_->position, first_outside_->index};
}

void Device::do_embedding(const Tensor& rows, const Tensor& table, const Tensor& ids,
                          const VocabularyShard& shard) {
    check_indices(ids, shard.whole);
    const std::int64_t element = bytes_of(table.dtype());
    const std::int64_t width = table.shape().columns() * element;
    launch_copy_rows(stream_.get(), rows.bytes_begin(), width,
                     {table.bytes_begin(), width},
                     {ids.data<const std::int32_t>(), shard.first, table.shape().rows()},
                     ids.elements(), width, element);
}

void Device::do_embedding_backward(const Tensor& d_table, const Tensor& ids,
                                   const Tensor& dy, const VocabularyShard& shard) {
    // Where they are few, for every row to look at every id costs less than sorting them.
    constexpr std::int64_t kFewIds = 512;
    constexpr std::int64_t kFewLooks = std::int64_t{1} << 26;
    constexpr std::int64_t kMost = INT32_MAX;
    const std::int64_t elements = ids.elements();
    require(elements <= kMost, "embedding_backward: {} ids; at most {} are expected",
            elements, kMost);
    check_indices(ids, shard.whole);
    const auto* id = ids.data<const std::int32_t>();
    with_real(d_table.dtype(), [&]<typename T>(T) {
        const ScatteredRows<T> scattered{
            d_table.data<T>(),         shard.first,        d_table.shape().rows(),
            d_table.shape().columns(), dy.data<const T>(), elements};
        if (elements <= kFewIds && elements * d_table.elements() <= kFewLooks)
            return launch_scatter_few(stream_.get(), scattered, id);
        const Tensor workspace = scratch({sort_workspace(elements)}, DType::i32);
        const SortedIds sorted =
            launch_sort(stream_.get(), workspace.data<std::int32_t>(), id, elements);
        launch_scatter_sorted(stream_.get(), scattered, sorted);
    });
}

void Device::do_random_uniform(const Tensor& destination, RandomStream stream, double low,
                               double high, std::int64_t offset) {
    with_real(destination.dtype(), [&]<typename T>(T) {
        launch_random_uniform(stream_.get(), destination.data<T>(),
                              destination.elements(), stream, low, high - low, offset);
    });
}

void Device::do_random_normal(const Tensor& destination, RandomStream stream, double mean,
                              double deviation, std::int64_t offset) {
    with_real(destination.dtype(), [&]<typename T>(T) {
        launch_random_normal(stream_.get(), destination.data<T>(), destination.elements(),
                             stream, mean, deviation, offset);
    });
}

}  // namespace lockstep::gpu

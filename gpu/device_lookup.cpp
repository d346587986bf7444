#include "gpu/device.hpp"
#include "gpu/kernels/columns_by_index.hpp"
#include "gpu/kernels/move.hpp"
#include "gpu/kernels/random.hpp"
#include "gpu/kernels/scatter.hpp"
#include "gpu/kernels/sort.hpp"
#include "gpu/kernels/top_k.hpp"
#include "src/core/require.hpp"

namespace lockstep::gpu {

void Device::check_indices(const Tensor& indices, std::int64_t bound) {
    const auto known = indices_below_.find(indices.storage());
    if (known != indices_below_.end() && known->second <= bound) return;
    const Tensor workspace = workspace_for_reduction();
    launch_first_outside(stream_.get(), workspace.bytes_begin(), first_outside_.get(),
                         indices.data<const std::int32_t>(), indices.elements(), bound);
    synchronize();
    if (first_outside_->position >= 0)
        throw IndexOutside{first_outside_->position, first_outside_->index};
    if (indices.bytes() == indices.storage()->bytes)
        indices_below_[indices.storage()] = bound;
}

template <>
void Device::compute(const ops::Embedding& op) {
    const std::int64_t element = bytes_of(op.table.dtype());
    const std::int64_t width = op.table.shape().columns() * element;
    launch_copy_rows(stream_.get(), op.rows.bytes_begin(), width,
                     {op.table.bytes_begin(), width},
                     {op.ids.data<const std::int32_t>(), op.shard.first,
                      op.table.shape().matrix_rows()},
                     op.ids.elements(), width, element);
}

template <>
void Device::compute(const ops::EmbeddingBackward& op) {
    // With few rows and ids, comparing every row with every id costs less than sorting.
    constexpr std::int64_t kFewIds = 512;
    constexpr std::int64_t kFewLooks = std::int64_t{1} << 26;
    constexpr std::int64_t kMost = INT32_MAX;
    const std::int64_t elements = op.ids.elements();
    require(elements <= kMost, "embedding_backward: {} ids; at most {} are expected",
            elements, kMost);
    const auto* id = op.ids.data<const std::int32_t>();
    const ScatteredRows scattered{op.d_table,
                                  op.shard.first,
                                  op.d_table.shape().matrix_rows(),
                                  op.d_table.shape().columns(),
                                  op.dy,
                                  elements};
    if (elements <= kFewIds && elements * op.d_table.elements() <= kFewLooks)
        return launch_scatter_few(stream_.get(), scattered, id);
    const Tensor workspace = scratch({sort_workspace(elements)}, DType::i32);
    launch_scatter_many(stream_.get(), workspace.data<std::int32_t>(), scattered, id);
}

template <>
void Device::compute(const ops::TakeRows& op) {
    compute(op.lookup());
}

template <>
void Device::compute(const ops::AddRows& op) {
    compute(op.lookup_backward());
}

template <>
void Device::compute(const ops::TakeColumns& op) {
    launch_take_columns(stream_.get(), op.destination, op.source,
                        op.index.data<const std::int32_t>(), op.index.elements(),
                        op.index.shape().columns(), op.source.shape().columns());
}

template <>
void Device::compute(const ops::AddColumns& op) {
    launch_add_columns(stream_.get(), op.destination, op.source,
                       op.index.data<const std::int32_t>(), op.destination.elements(),
                       op.index.shape().columns(), op.destination.shape().columns());
}

template <>
void Device::compute(const ops::TopK& op) {
    launch_top_k(stream_.get(), op.values, op.indices.data<std::int32_t>(), op.x,
                 op.x.shape().matrix_rows(), op.x.shape().columns(), op.k, op.groups);
}

template <>
void Device::compute(const ops::SortIds& op) {
    const std::int64_t elements = op.ids.elements();
    const Tensor workspace = scratch({sort_workspace(elements)}, DType::i32);
    launch_sort_ids(stream_.get(),
                    {op.order.data<std::int32_t>(), op.rows.data<std::int32_t>(),
                     op.counts.data<std::int32_t>(), op.ids.shape().columns(),
                     op.counts.elements(), op.by_columns},
                    workspace.data<std::int32_t>(), op.ids.data<const std::int32_t>(),
                    elements);
}

template <>
void Device::compute(const ops::RandomUniform& op) {
    ops::each_run(op.destination, op.part, [&](const Tensor& run, std::int64_t first) {
        launch_random_uniform(stream_.get(), run, run.elements(), op.stream, op.low,
                              op.high - op.low, first);
    });
}

template <>
void Device::compute(const ops::RandomNormal& op) {
    ops::each_run(op.destination, op.part, [&](const Tensor& run, std::int64_t first) {
        launch_random_normal(stream_.get(), run, run.elements(), op.stream, op.mean,
                             op.deviation, first);
    });
}

template <>
void Device::compute(const ops::Dropout& op) {
    ops::each_run(op.y, op.part, [&](const Tensor& run, std::int64_t first) {
        const Tensor x = op.x.slice(
            (run.offset_bytes() - op.y.offset_bytes()) / bytes_of(op.y.dtype()),
            run.elements());
        launch_dropout(stream_.get(), run, x, run.elements(), op.stream, op.probability,
                       first);
    });
}

}  // namespace lockstep::gpu

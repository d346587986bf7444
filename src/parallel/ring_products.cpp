#include "src/parallel/ring_products.hpp"

namespace lockstep {

namespace {

/// Returns a copy of only the heads' columns, to send around the ring.
Tensor alone(Device& device, const Heads& own) {
    const std::int64_t columns = own.heads * own.width;
    const MemoryScope scope(device, MemoryCategory::communication);
    const Tensor block =
        device.empty(own.tensor.shape().with_last(columns), own.tensor.dtype());
    device.copy_columns(block, 0, own.tensor, own.first, columns);
    return block;
}

}  // namespace

// lesson: ring-products
Tensor ring_products(Device& device, const Ring& ring, const Heads& x, const Heads& own,
                     double factor, SourceLine at) {
    const std::int64_t share = own.rows();
    const Shape shape{x.batches(), x.heads, x.rows(), ring.size() * share};
    const Tensor products = device.empty(shape, x.tensor.dtype());
    const auto visit = [&](const Tensor& block, int rank) {
        const Heads y{block, own.heads, own.width, 0};
        const Tensor part = device.head_products(x, y, factor);
        device.copy_columns(products, rank * share, part, 0, share);
    };
    ring.travel(alone(device, own), visit, at);
    return products;
}
// lesson: end

// lesson: ring-sums
void add_ring_sums(Device& device, const Ring& ring, const Heads& sums,
                   const Tensor& weights, const Heads& own, double factor,
                   SourceLine at) {
    const std::int64_t share = own.rows();
    const Tensor part = device.empty(weights.shape().with_last(share), weights.dtype());
    const auto visit = [&](const Tensor& block, int rank) {
        const Heads y{block, own.heads, own.width, 0};
        device.copy_columns(part, 0, weights, rank * share, share);
        device.add_head_sums(sums, part, y, {.factor = factor});
    };
    ring.travel(alone(device, own), visit, at);
}
// lesson: end

}  // namespace lockstep

// The loss on a validation set that is sharded over all ranks.

#include <algorithm>

#include "programs.hpp"
#include "src/comm/chunks.hpp"

using namespace lockstep;

namespace {

/// The number of rows that fit into memory, together with their logits.
constexpr std::int64_t kRowsAtOnce = 4;

}  // namespace

Tensor evaluate(Rank& rank, const Tensor& weight, std::int64_t rows, const Tensor& x,
                const Tensor& labels) {
    Device& device = rank.device();
    const Chunk own = chunk(rows, rank.size(), rank.index());
    const Tensor loss = device.zeros({1}, DType::f64);
    for (std::int64_t from = 0; from < own.count; from += kRowsAtOnce) {
        const std::int64_t count = std::min(kRowsAtOnce, own.count - from);
        const Tensor logits = device.matmul(x.rows(from, count), weight);
        const Tensor losses = device.cross_entropy(logits, labels.slice(from, count));
        device.sum(loss, losses, /*accumulate=*/true);
    }
    device.scale(loss, 1.0 / static_cast<double>(own.count * rank.size()));
    rank.world().all_reduce(loss).wait();
    return loss;
}

#include "adapters.hpp"

#include "programs.hpp"

namespace adapters {

void train_filtered(Rank& rank, const Tensor& weight, const Tensor& bias,
                    const Tensors& inputs, const Tensors& targets) {
    ::train_filtered(rank, weight, bias, inputs, targets);
}

void pipeline_gradients(Rank& rank, const Tensor& weight, const Tensor& gradient,
                        int micro_batches, std::int64_t rows, const Tensors& inputs,
                        const Tensors& targets) {
    ::pipeline_gradients(rank, weight, gradient, micro_batches, rows, inputs, targets);
}

Tensor prefetching_forward(Rank& rank, const Tensors& shards, const Tensor& x) {
    return ::prefetching_forward(rank, shards, x);
}

Tensor evaluate(Rank& rank, const Tensor& weight, std::int64_t rows, const Tensor& x,
                const Tensor& labels) {
    return ::evaluate(rank, weight, rows, x, labels);
}

void clip_gradients(Rank& rank, const Tensors& sharded, const Tensors& replicated,
                    double largest) {
    ::clip_gradients(rank, sharded, replicated, largest);
}

void accumulate_gradients(Rank& rank, const Tensors& weights, const Tensors& gradients,
                          const Tensors& inputs, const Tensors& targets) {
    ::accumulate_gradients(rank, weights, gradients, inputs, targets);
}

}  // namespace adapters

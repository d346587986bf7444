#include "adapters.hpp"

#include "ddp_buckets.hpp"

using namespace lockstep;

std::vector<Tensor> adapters::make_buckets(Rank& rank, Module& network,
                                           const BucketLimits& limits) {
    return Buckets(rank, network, limits).tensors();
}

Tensor adapters::batch_gradient(Rank& rank, Module& network,
                                const MicroBatches& micro_batches,
                                const BucketLimits& limits) {
    Buckets buckets(rank, network, limits);
    return ::batch_gradient(rank, network, buckets, micro_batches);
}

Tensor adapters::train(Rank& rank, Module& network, const MicroBatches& micro_batches,
                       const BucketLimits& limits, int steps, double learning_rate) {
    return ::train(rank, network, micro_batches, limits, steps, learning_rate);
}

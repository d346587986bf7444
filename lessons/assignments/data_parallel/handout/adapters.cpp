#include "adapters.hpp"

#include "data_parallel.hpp"

using namespace lockstep;

Tensor adapters::shard_gradient(Rank& rank, Module& network, const Shard& shard,
                                std::int64_t most_rows) {
    return ::shard_gradient(rank, network, shard, most_rows);
}

Tensor adapters::batch_gradient(Rank& rank, Module& network, const Shard& shard,
                                std::int64_t most_rows) {
    return ::batch_gradient(rank, network, shard, most_rows);
}

Tensor adapters::train(Rank& rank, Module& network, const Shard& shard,
                       std::int64_t most_rows, int steps, double learning_rate) {
    return ::train(rank, network, shard, most_rows, steps, learning_rate);
}

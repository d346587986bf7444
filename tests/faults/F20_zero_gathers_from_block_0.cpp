// F20: ZeRO gathers the weights in place. Each rank's shard is a block of the whole, but
// every rank uses block 0.
//
// finds: F20
// check: cheap
// ranks: 4, 256
// parties: 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    constexpr int kShard = 8;
    const Tensor weights = device.zeros({rank.size() * kShard}, DType::f32);
    const Tensor gradient = device.zeros({kShard}, DType::f32);
    const int own = 0;  // twin: const int own = rank.index() * kShard;
    const Tensor shard = weights.slice(own, kShard);
    device.fill(gradient, rank.index());
    device.sgd(shard, gradient, Tensor(), {.learning_rate = 0.1});
    rank.world().all_gather(weights, shard).wait();  // line: gather
}

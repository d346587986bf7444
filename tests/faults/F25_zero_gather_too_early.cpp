// F25: ZeRO. The weights for the next forward are gathered before the optimizer has
// updated the shards.
//
// finds: F25
// check: full
// ranks: 4, 16
// parties: 0 | 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& replicas = rank.world();
    const int n = rank.size();
    const Tensor shard = device.empty({2, 4}, DType::f32);
    device.random_normal(shard, {3, "layer.weight"}, 0, 0.1, rank.index() * 8);
    const Tensor weight = device.empty({2 * n, 4}, DType::f32);
    const Tensor gradient = device.empty({2, 4}, DType::f32);
    const auto gather = [&] {
        replicas.all_gather(weight, shard).wait();  // line: gather
    };
    gather();
    const bool early = true;  // twin: const bool early = false;
    for (int step = 0; step < 3; ++step) {
        const Tensor x = device.empty({3, 4}, DType::f32);
        device.random_normal(x, {4, "data"}, 0, 1, (step * n + rank.index()) * 12);
        Tensor y;
        {
            const PhaseScope phase(device, Phase::forward, 0);
            y = device.matmul(x, weight, {.transpose_b = true});  // line: forward
        }
        {
            const PhaseScope phase(device, Phase::backward, 0);
            const Tensor whole = device.matmul(y, x, {.transpose_a = true});
            replicas.reduce_scatter(gradient, whole, Reduction::mean).wait();
        }
        if (early) gather();
        device.sgd(shard, gradient, Tensor(), {.learning_rate = 0.1});  // line: step
        if (!early) gather();
    }
}

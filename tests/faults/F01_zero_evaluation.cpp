// F01: sharded optimizer states (ZeRO). The rank that evaluates gathers the new weights
// before it has reduced its gradient.
//
// finds: F01
// check: cheap
// ranks: 4, 256
// parties: 2 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& replicas = rank.world();
    const int shard = 16;
    const Tensor weight = device.zeros({shard * rank.size()}, DType::f32);
    const Tensor gradient = device.zeros({shard * rank.size()}, DType::f32);
    const Tensor my_weight = device.zeros({shard}, DType::f32);
    const Tensor my_gradient = device.zeros({shard}, DType::f32);
    const auto fetch = [&] {
        replicas.all_gather(weight, my_weight).wait();  // line: fetch
    };
    const bool evaluates = rank.index() == 2;  // twin: const bool evaluates = false;
    if (evaluates) fetch();
    replicas.reduce_scatter(my_gradient, gradient).wait();  // line: give
    device.sgd(my_weight, my_gradient, Tensor(), {});
    if (!evaluates) fetch();
}

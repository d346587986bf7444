// F17: ZeRO. One buffer is for a layer's gradients in backward and for weights in
// forward. To overlap, another communicator gathers the next layer's weights into the
// buffer. But the last gradients are still being scattered from the buffer.
//
// finds: F17
// check: full
// ranks: 4, 256
// parties: 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const auto gathers = rank.world().split(0, rank.index(), "gathers");
    const auto scatters = rank.world().split(0, rank.index(), "scatters");
    const int n = rank.size();
    const Tensor whole = device.zeros({n * 4}, DType::f32);
    const Tensor weight_shard = device.zeros({4}, DType::f32);
    const Tensor gradient_shard = device.zeros({4}, DType::f32);

    device.fill(whole, 1);  // the gradients of the whole layer
    Work scattering = scatters->reduce_scatter(gradient_shard, whole);  // line: scatter
    // twin: scattering.wait();
    Work gathering = gathers->all_gather(whole, weight_shard);  // line: gather
    gathering.wait();
    scattering.wait();
    device.sgd(weight_shard, gradient_shard, Tensor(), {.learning_rate = 0.1});
}

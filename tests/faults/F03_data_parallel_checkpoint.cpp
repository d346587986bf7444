// F03: rank 0 loads a checkpoint with 64-bit numbers and broadcasts the weights.
//
// finds: F03
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const bool loads = rank.index() == 0;
    const DType loaded = DType::f64;  // twin: const DType loaded = DType::f32;
    const Tensor weight = device.zeros({64}, loads ? loaded : DType::f32);
    if (loads) device.fill(weight, 0.5);
    rank.world().broadcast(weight, 0).wait();  // line: broadcast
    const Tensor gradient = device.zeros({64}, weight.dtype());
    rank.world().all_reduce(gradient).wait();
    device.sgd(weight, gradient, Tensor(), {});
}

// F04: data parallelism with means. One rank's old program takes sums and divides them.
//
// finds: F04
// check: cheap
// ranks: 4, 256
// parties: 3 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const Tensor weight = device.zeros({64}, DType::f32);
    const Tensor gradient = device.zeros({64}, DType::f32);
    const bool old = rank.index() == 3;  // twin: const bool old = false;
    if (old) {
        rank.world().all_reduce(gradient, Reduction::sum).wait();  // line: sum
        device.scale(gradient, 1.0 / rank.size());
    } else {
        rank.world().all_reduce(gradient, Reduction::mean).wait();  // line: mean
    }
    device.sgd(weight, gradient, Tensor(), {});
}

// F13: in every second step the rank that logs also reduces the validation loss. The
// other ranks do not.
//
// finds: F13
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const Tensor weight = device.zeros({64}, DType::f32);
    const Tensor gradient = device.zeros({64}, DType::f32);
    const Tensor loss = device.zeros({1}, DType::f32);
    const bool evaluates = rank.index() == 0;  // twin: const bool evaluates = true;
    for (int step = 0; step < 4; ++step) {
        rank.world().all_reduce(gradient).wait();  // line: gradient
        device.sgd(weight, gradient, Tensor(), {});
        if (evaluates && step % 2 == 1)
            rank.world().reduce(loss, 0).wait();  // line: validation
    }
}

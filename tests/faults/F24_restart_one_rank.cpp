// F24: training continues after a restart, but one rank loaded an older checkpoint.
//
// finds: F24
// check: full
// ranks: 4, 16
// parties: 2 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const std::vector<float> newest{0.5F, -0.25F, 0.75F, 1.0F};
    const std::vector<float> older{0.5F, -0.25F, 0.625F, 1.0F};
    const bool late = rank.index() == 2;  // twin: const bool late = false;
    const Tensor bias = device.zeros({4}, DType::f32);
    bias.set_label("head.bias");
    const Tensor velocity = device.zeros({4}, DType::f32);
    for (int step = 0; step < 4; ++step) {
        if (step == 2)
            device.upload_into(bias, HostTensor::of({4}, late ? older : newest));  // line: load
        const Tensor gradient = device.zeros({4}, DType::f32);
        device.fill(gradient, 0.01 * (rank.index() + step));
        rank.world().all_reduce(gradient).wait();
        device.sgd(bias, gradient, velocity, {.momentum = 0.9});  // line: step
    }
}

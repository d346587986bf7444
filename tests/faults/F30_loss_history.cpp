// F30: a training loop. It keeps the outputs of every step for later.
//
// finds: F30
// check: cheap
// ranks: 4
// parties: 0 | 0
// memory: 20000

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const MemoryScope parameters(device, MemoryCategory::parameters);
    const Tensor weight = device.zeros({16, 16}, DType::f32);
    const MemoryScope activations(device, MemoryCategory::activations);
    std::vector<Tensor> history;
    for (int step = 0; step < 40; ++step) {
        Tensor output;
        {
            const PhaseScope phase(device, Phase::forward, 0);
            const Tensor x = device.zeros({16, 16}, DType::f32);
            output = device.matmul(x, weight);  // line: output
        }
        const PhaseScope phase(device, Phase::update);
        const Tensor gradient = device.zeros({16, 16}, DType::f32);
        rank.world().all_reduce(gradient, Reduction::mean).wait();
        device.sgd(weight, gradient, Tensor(), {});
        history.push_back(output);  // twin: rank.keep_value("step", step);
    }
}

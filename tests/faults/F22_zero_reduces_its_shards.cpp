// F22: ZeRO-1 by hand. After the reduce_scatter each rank has its own part of the
// gradient. But an all_reduce from plain data parallelism remains, and mixes the parts.
//
// finds: F22
// check: full
// ranks: 2, 4
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    const std::int64_t part = 6;
    const Tensor weight = device.empty({part * rank.size(), 1}, DType::f64);
    device.random_normal(weight, RandomStream(2, "weight"), 0, 0.1);
    const Tensor own = weight.rows(part * rank.index(), part);
    const Tensor own_gradient = device.empty({part, 1}, DType::f64);
    const Tensor velocity = device.zeros({part, 1}, DType::f64);
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({8, part * rank.size()}, DType::f64);
        const Tensor y = device.zeros({8, 1}, DType::f64);
        device.random_normal(x, RandomStream(3 + step, "x"), 0, 1,
                             rank.index() * x.elements());
        const Tensor prediction = device.matmul(x, weight);
        const LossResult loss =
            mean_squared_error(device, prediction, y, 1.0 / rank.size());
        const Tensor gradient =
            device.matmul(x, loss.gradient, {.transpose_a = true});
        world.reduce_scatter(own_gradient, gradient).wait();  // line: scatter
        world.all_reduce(own_gradient).wait();  // line: again // twin: 
        device.sgd(own, own_gradient, velocity, {0.1, 0.9, 0});
        world.all_gather(weight, own).wait();
    }
}

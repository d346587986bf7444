// F23: ZeRO by hand. Each rank clips its part of the gradient by the norm of only this
// part. It reads the norm on the host.
//
// finds: F23
// check: full
// ranks: 2, 4
// parties: 0 | 1

#include <cmath>

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    const std::int64_t part = 6;
    const Tensor weight = device.empty({part * rank.size(), 2}, DType::f64);
    device.random_normal(weight, RandomStream(2, "weight"), 0, 0.1);
    const Tensor own = weight.rows(part * rank.index(), part);
    const Tensor own_gradient = device.empty({part, 2}, DType::f64);
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({8, part * rank.size()}, DType::f64);
        const Tensor y = device.zeros({8, 2}, DType::f64);
        device.random_normal(x, RandomStream(3 + step, "x"), 0, 1,
                             rank.index() * x.elements());
        const LossResult loss = mean_squared_error(device, device.matmul(x, weight), y,
                                                   1.0 / rank.size());
        world.reduce_scatter(own_gradient, device.matmul(x, loss.gradient, {.transpose_a = true})).wait();  // line: scatter
        const Tensor squares = device.zeros({1}, DType::f64);
        device.sum_of_squares(squares, own_gradient);
        // twin: world.all_reduce(squares).wait();
        const double norm = std::sqrt(device.download(squares).at(0));
        if (norm > 0.01) device.scale(own_gradient, 0.01 / norm);
        device.sgd(own, own_gradient, Tensor(), {.learning_rate = 0.1});  // line: step
        world.all_gather(weight, own).wait();
    }
}

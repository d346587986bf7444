// F27: local SGD. The loop over local steps does not zero the gradient, so every step
// repeats the gradients of all steps before it.
//
// finds: F27
// check: full
// ranks: 1, 4
// parties: 0 | 0

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const Tensor weight = device.empty({6, 3}, DType::f64);
    const Tensor gradient = device.zeros({6, 3}, DType::f64);
    device.random_normal(weight, RandomStream(2, "weight"), 0, 0.1);
    for (int round = 0; round < 2; ++round) {
        for (int step = 0; step < 3; ++step) {
            const Tensor x = device.empty({4, 6}, DType::f64);
            const Tensor y = device.zeros({4, 3}, DType::f64);
            const int part = (3 * round + step) * rank.size() + rank.index();
            device.random_normal(x, RandomStream(1, "x"), 0, 1, part * x.elements());
            // twin: device.fill(gradient, 0);
            const Tensor prediction = device.matmul(x, weight);
            const LossResult loss = mean_squared_error(device, prediction, y);
            MatmulOptions add;
            add.transpose_a = add.accumulate = true;
            device.matmul_into(gradient, x, loss.gradient, add);   // line: add
            device.sgd(weight, gradient, Tensor(), {0.1, 0, 0});  // line: step
        }
        rank.world().all_reduce(weight, Reduction::mean).wait();
    }
}

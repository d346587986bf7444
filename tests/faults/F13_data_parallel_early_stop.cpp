// F13: each rank stops when its own loss is low enough. Rank 0 stops first.
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
    double seen = 1;
    for (int step = 0; step < 8 && seen > 0.3; ++step) {
        rank.world().all_reduce(gradient).wait();  // line: gradient
        device.sgd(weight, gradient, Tensor(), {});
        device.fill(loss, 1.0 / (step + 1 + (rank.index() == 0 ? 2 : 0)));
        // twin: rank.world().all_reduce(loss, Reduction::mean).wait();
        seen = device.download(loss).at(0);
    }
    rank.world().broadcast(weight, 0).wait();  // line: end
}

// F19: local SGD averages the weights every few steps, and for a log also the loss. The
// program never waits for the average of the loss.
//
// finds: F19
// check: cheap
// ranks: 4, 256
// parties: all

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const auto metrics = rank.world().split(0, rank.index(), "metrics");
    const Tensor weight = device.zeros({32}, DType::f32);
    const Tensor gradient = device.zeros({32}, DType::f32);
    std::vector<Tensor> losses;
    std::vector<Work> logged;
    for (int step = 0; step < 6; ++step) {
        device.fill(gradient, rank.index() + step);
        device.sgd(weight, gradient, Tensor(), {.learning_rate = 0.1});
        losses.push_back(device.squared_error(weight, gradient));
        if (step % 3 == 2) {
            rank.world().all_reduce(weight, Reduction::mean).wait();
            logged.push_back(metrics->all_reduce(losses.back()));  // line: launch
        }
    }
    // twin: logged.back().wait();
}

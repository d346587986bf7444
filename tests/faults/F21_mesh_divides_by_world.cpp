// F21: data times tensor parallelism. The gradients are summed over the replicas, but
// divided by the number of all ranks.
//
// finds: F21
// check: full
// ranks: 6
// parties: 0 3 | 0 3 | 0 3

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

void program(Rank& rank) {
    // Each of three ranks has a third of the outputs. There are two such replicas.
    Device& device = rank.device();
    const int column = rank.index() % 3;
    const int replica = rank.index() / 3;
    const auto replicas = rank.world().split(column, replica, "dp");
    Linear third({device, DType::f64, 7, "third" + std::to_string(column)}, 6, 5);
    AdamW optimizer(third.parameters());
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({4, 6}, DType::f64);
        const Tensor y = device.empty({4, 5}, DType::f64);
        const int part = 2 * step + replica;
        device.random_normal(x, RandomStream(1, "x"), 0, 1, part * x.elements());
        device.random_normal(y, RandomStream(1, "y"), 0, 1, part * y.elements());
        zero_gradients(third);
        Saved saved;
        const Tensor prediction = third.forward(x, saved);
        const LossResult loss = mean_squared_error(device, prediction, y);  // line: loss
        third.backward(loss.gradient, saved);
        const int shares = rank.size();  // twin: const int shares = replicas->size();
        for (Parameter* parameter : third.parameters()) {
            replicas->all_reduce(parameter->gradient).wait();   // line: sum
            device.scale(parameter->gradient, 1.0 / shares);    // line: divide
        }
        optimizer.step();
    }
}

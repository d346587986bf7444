// F22: data parallelism. A hook reduces each gradient as soon as it is complete. The old
// loop before the step reduces the gradient again.
//
// finds: F22
// check: full
// ranks: 2, 4
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Linear model({device, DType::f64, 7, "layer"}, 6, 5);
    Sgd optimizer(model.parameters());
    std::vector<Work> pending;
    for (Parameter* parameter : model.parameters())
        parameter->on_gradient([&](Parameter& ready) {
            pending.push_back(rank.world().all_reduce(ready.gradient));  // line: hook
        });
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({4, 6}, DType::f64);
        const Tensor y = device.empty({4, 5}, DType::f64);
        const int part = rank.size() * step + rank.index();
        device.random_normal(x, RandomStream(1, "x"), 0, 1, part * x.elements());
        device.random_normal(y, RandomStream(1, "y"), 0, 1, part * y.elements());
        zero_gradients(model);
        Saved saved;
        const Tensor prediction = model.forward(x, saved);
        const LossResult loss =
            mean_squared_error(device, prediction, y, 1.0 / rank.size());
        model.backward(loss.gradient, saved);
        for (Work& work : pending)
            work.wait();
        pending.clear();
        for (const Parameter* parameter : model.parameters())
            rank.world().all_reduce(parameter->gradient).wait();  // line: loop // twin: (void)parameter;
        optimizer.step();
    }
}

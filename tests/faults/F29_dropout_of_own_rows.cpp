// F29: dropout. Each rank counts rows from the beginning of its own share, not of the
// batch. So the dropped elements are the same in row i of every rank.
//
// finds: F29
// check: full
// ranks: 2, 4
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/dropout.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/nn/sequential.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Sequential model;
    model.add<Linear>(ParameterInit{device, DType::f64, 7, "layer"}, 6, 5);
    Dropout& dropout = model.add<Dropout>(device, 0.5, RandomStream(9, "dropout"));
    Sgd optimizer(model.parameters());
    const std::int64_t rows = 2 * (rank.index() + 1);
    const std::int64_t before = rank.index() * (rank.index() + 1);
    const std::int64_t batch = rank.size() * (rank.size() + 1);
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({rows, 6}, DType::f64);
        const std::int64_t first = step * batch + before;
        device.random_normal(x, RandomStream(1, "x"), 0, 1, first * 6);
        const std::int64_t counted = first - before;  // twin: const std::int64_t counted = first;
        dropout.set_part(counted * 5);
        zero_gradients(model);
        Saved saved;
        Tensor y;
        {
            const PhaseScope phase(device, Phase::forward, 0);
            y = model.forward(x, saved);  // line: forward
        }
        const Tensor target = device.zeros({rows, 5}, DType::f64);
        const double weight = static_cast<double>(rows) / static_cast<double>(batch);
        model.backward(mean_squared_error(device, y, target, weight).gradient, saved);
        for (const Parameter* parameter : model.parameters())
            rank.world().all_reduce(parameter->gradient).wait();  // line: reduced
        optimizer.step();
    }
}

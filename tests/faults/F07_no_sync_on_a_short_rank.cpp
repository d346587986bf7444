// F07: gradients are accumulated over micro-batches. The last micro-batch reduces them,
// as PyTorch does outside of no_sync. In the last step rank 0 has one micro-batch fewer,
// so it never reaches the micro-batch that reduces.
//
// finds: F07
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Linear model({device, DType::f32, 7, "layer"}, 6, 5);
    Sgd optimizer(model.parameters());
    const int steps = 2;
    for (int step = 0; step < steps; ++step) {
        const bool ends_early = step + 1 == steps && rank.index() == 0;
        const int micro_batches = ends_early ? 2 : 3;
        const double rows = 12.0 * rank.size() - (step + 1 == steps ? 4 : 0);
        zero_gradients(model);
        for (int m = 0; m < micro_batches; ++m) {
            const Tensor x = device.empty({4, 6}, DType::f32);
            const Tensor y = device.empty({4, 5}, DType::f32);
            const int part = (3 * step + m) * rank.size() + rank.index();
            device.random_normal(x, RandomStream(1, "x"), 0, 1, part * x.elements());
            device.random_normal(y, RandomStream(1, "y"), 0, 1, part * y.elements());
            Saved saved;
            const Tensor prediction = model.forward(x, saved);
            model.backward(mean_squared_error(device, prediction, y, 4 / rows).gradient,
                           saved);
            const bool no_sync = m + 1 < 3;  // twin: const bool no_sync = m + 1 < micro_batches;
            if (no_sync) continue;
            for (const Parameter* parameter : model.parameters())
                rank.world().all_reduce(parameter->gradient).wait();  // line: reduce
        }
        optimizer.step();
    }
}

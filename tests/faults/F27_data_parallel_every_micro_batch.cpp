// F27: data parallelism with gradient accumulation. The gradients are reduced after every
// micro-batch, so the sum of the first micro-batch is summed again and again.
//
// finds: F27
// check: full
// ranks: 2, 4
// parties: all | all | all

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Linear model({device, DType::f64, 7, "layer"}, 6, 5);
    AdamW optimizer(model.parameters());
    const int micro_batches = 3;
    for (int step = 0; step < 2; ++step) {
        zero_gradients(model);
        for (int m = 0; m < micro_batches; ++m) {
            const Tensor x = device.empty({4, 6}, DType::f64);
            const Tensor y = device.empty({4, 5}, DType::f64);
            const int part = (micro_batches * step + m) * rank.size() + rank.index();
            device.random_normal(x, RandomStream(1, "x"), 0, 1, part * x.elements());
            device.random_normal(y, RandomStream(1, "y"), 0, 1, part * y.elements());
            Saved saved;
            const Tensor prediction = model.forward(x, saved);
            const LossResult loss = mean_squared_error(
                device, prediction, y, 1.0 / (micro_batches * rank.size()));
            model.backward(loss.gradient, saved);
            const bool last = true;  // twin: const bool last = m + 1 == micro_batches;
            if (!last) continue;
            for (const Parameter* parameter : model.parameters())
                rank.world().all_reduce(parameter->gradient).wait();  // line: reduce
        }
        optimizer.step();
    }
}

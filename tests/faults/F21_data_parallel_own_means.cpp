// F21: data parallelism. Each rank's loss is the mean over its own rows. The gradients of
// these means are added up.
//
// finds: F21
// check: full
// ranks: 2, 4
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Linear model({device, DType::f64, 7, "head"}, 6, 5);
    Sgd optimizer(model.parameters());
    const Tensor x = device.empty({8, 6}, DType::f64);
    HostTensor labels({8}, DType::i32);
    for (int step = 0; step < 2; ++step) {
        const int part = rank.size() * step + rank.index();
        device.random_normal(x, RandomStream(1, "x"), 0, 1, part * x.elements());
        for (int i = 0; i < 8; ++i)
            labels.set(i, (3 * i + part) % 5);
        zero_gradients(model);
        Saved saved;
        const Tensor logits = model.forward(x, saved);
        const Tensor targets = device.upload(labels);
        const double weight = 1;  // twin: const double weight = 1.0 / rank.size();
        const LossResult loss = cross_entropy_loss(device, logits, targets, weight);  // line: loss
        model.backward(loss.gradient, saved);
        for (Parameter* parameter : model.parameters())
            rank.world().all_reduce(parameter->gradient).wait();  // line: reduce
        optimizer.step();
    }
}

// F28: data parallelism over sequences of unequal length. Each rank takes the mean over
// its own tokens. But the mean of these means is not the mean over all tokens.
//
// finds: F28
// check: full
// ranks: 3
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Linear model({device, DType::f64, 7, "head"}, 6, 5);
    AdamW optimizer(model.parameters());
    const int tokens = 4 + 2 * rank.index();  // 4, 6, 8: 18 in all
    HostTensor labels({tokens}, DType::i32);
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({tokens, 6}, DType::f64);
        device.random_normal(x, RandomStream(1 + step, "x"), 0, 1, 100 * rank.index());
        for (int i = 0; i < tokens; ++i)
            labels.set(i, (3 * i + rank.index()) % 5);
        const Tensor targets = device.upload(labels);
        zero_gradients(model);
        Saved saved;
        const Tensor logits = model.forward(x, saved);
        const double weight = 1;  // twin: const double weight = tokens * 3 / 18.0;
        const LossResult loss = cross_entropy_loss(device, logits, targets, weight);  // line: loss
        model.backward(loss.gradient, saved);
        for (const Parameter* parameter : model.parameters())
            rank.world().all_reduce(parameter->gradient, Reduction::mean).wait();  // line: mean
        optimizer.step();
    }
}

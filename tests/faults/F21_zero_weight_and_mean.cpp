// F21: ZeRO-1 by hand. The loss is already divided by the number of ranks. Then the
// reduction of the gradients also takes the mean over the ranks.
//
// finds: F21
// check: full
// ranks: 2, 4
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    const std::int64_t part = 6;
    const Tensor weight = device.empty({part * rank.size(), 3}, DType::f64);
    device.random_normal(weight, RandomStream(2, "weight"), 0, 0.1);
    const Tensor own = weight.rows(part * rank.index(), part);
    const Tensor own_gradient = device.empty({part, 3}, DType::f64);
    const HostTensor labels({8}, DType::i32);
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({8, part * rank.size()}, DType::f64);
        device.random_normal(x, RandomStream(3 + step, "x"), 0, 1,
                             rank.index() * x.elements());
        const Tensor logits = device.matmul(x, weight);
        const Tensor targets = device.upload(labels);
        const LossResult loss =
            cross_entropy_loss(device, logits, targets, 1.0 / rank.size());  // line: loss
        const Tensor whole = device.matmul(x, loss.gradient, {.transpose_a = true});
        const Reduction how = Reduction::mean;  // twin: const Reduction how = Reduction::sum;
        world.reduce_scatter(own_gradient, whole, how).wait();  // line: scatter
        device.sgd(own, own_gradient, Tensor(), {.learning_rate = 0.1});
        world.all_gather(weight, own).wait();
    }
}

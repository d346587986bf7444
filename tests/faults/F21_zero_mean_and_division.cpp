// F21: ZeRO-2 by hand. The reduction takes the mean of the gradients. Then each rank
// again divides its shard by the number of ranks.
//
// finds: F21
// check: full
// ranks: 4
// parties: all | all | all

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const std::int64_t part = 8;
    const Tensor weight = device.empty({part * rank.size(), 3}, DType::f64);
    device.random_normal(weight, RandomStream(2, "weight"), 0, 0.1);
    const Tensor own = weight.rows(part * rank.index(), part);
    const Tensor own_gradient = device.zeros({part, 3}, DType::f64);
    const Tensor first = device.zeros({part, 3}, DType::f64);
    const Tensor second = device.zeros({part, 3}, DType::f64);
    const Tensor x = device.empty({5, part * rank.size()}, DType::f64);
    HostTensor labels({5}, DType::i32);
    for (int step = 1; step <= 2; ++step) {
        device.random_normal(x, RandomStream(3 + step, "x"), 0, 1,
                             rank.index() * x.elements());
        for (int i = 0; i < 5; ++i)
            labels.set(i, (i + rank.index()) % 3);
        const Tensor logits = device.matmul(x, weight);
        const Tensor targets = device.upload(labels);
        const LossResult loss = cross_entropy_loss(device, logits, targets);  // line: loss
        const Tensor gradient =
            device.matmul(x, loss.gradient, {.transpose_a = true});
        Communicator& world = rank.world();
        world.reduce_scatter(own_gradient, gradient, Reduction::mean).wait();  // line: mean
        device.scale(own_gradient, 1.0 / rank.size());  // line: divide // twin: 
        device.adamw(own, own_gradient, first, second, step, {});
        world.all_gather(weight, own).wait();
    }
}

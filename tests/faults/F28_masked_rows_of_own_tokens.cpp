// F28: context parallelism with a prompt that does not count. Each rank divides by its own
// number of tokens that count (NVIDIA/Megatron-LM#7513).
//
// finds: F28
// check: full
// ranks: 2, 3
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Linear model({device, DType::f64, 7, "head"}, 6, 5);
    Sgd optimizer(model.parameters());
    const int n = rank.size(), counted = rank.index() == 0 ? 1 : 4;  // of 4 tokens each
    std::vector<double> keeps(4, 1);
    for (int i = 0; i < 4 - counted; ++i) keeps[static_cast<std::size_t>(i)] = 0;
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({4, 6}, DType::f64);
        device.random_normal(x, RandomStream(step, "x"), 0, 1, rank.index() * 24);
        zero_gradients(model);
        Saved saved;
        const Tensor y = model.forward(x, saved);
        const Tensor target = device.zeros({4}, DType::i32);
        const double divide = counted * n;  // twin: const double divide = 1 + 4.0 * (n - 1);
        const LossResult loss = cross_entropy_loss(device, y, target, 4 / divide);  // line: loss
        device.scale_rows(loss.gradient, device.upload(HostTensor::of({4}, keeps)));
        model.backward(loss.gradient, saved);
        for (const Parameter* parameter : model.parameters())
            rank.world().all_reduce(parameter->gradient).wait();  // line: sum
        optimizer.step();
    }
}

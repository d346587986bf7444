// F26: an all-reduce in two halves, with work between the halves. The second half uses a
// communicator that has the ranks in another order.
//
// finds: F26
// check: full
// ranks: 4
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    const int key = -rank.index();  // twin: const int key = rank.index();
    const auto gathers = world.split(0, key, "gathers");
    const std::int64_t part = 6;
    const Tensor weight = device.empty({part * rank.size(), 1}, DType::f64);
    device.random_normal(weight, RandomStream(2, "weight"), 0, 0.1);
    const Tensor own = device.empty({part, 1}, DType::f64);
    const Tensor whole = device.empty({part * rank.size(), 1}, DType::f64);
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({8, part * rank.size()}, DType::f64);
        const Tensor y = device.zeros({8, 1}, DType::f64);
        device.random_normal(x, RandomStream(3 + step, "x"), 0, 1,
                             rank.index() * x.elements());
        const Tensor prediction = device.matmul(x, weight);
        const LossResult loss =
            mean_squared_error(device, prediction, y, 1.0 / rank.size());
        const Tensor gradient =
            device.matmul(x, loss.gradient, {.transpose_a = true});
        world.reduce_scatter(own, gradient).wait();  // line: dealt
        device.scale(own, 0.5);
        gathers->all_gather(whole, own).wait();  // line: gathered
        device.sgd(weight, whole, Tensor(), {});
    }
}

// F26: ZeRO-3 by hand on a 2 x 2 mesh. Each rank's part of the weight has the rank's
// number in the world, but the group that gathers numbers its ranks in another order.
//
// finds: F26
// check: full
// ranks: 4
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int node = rank.index() / 2;
    const int local = rank.index() % 2;
    const int place = 2 * local + node;  // twin: const int place = 2 * node + local;
    const auto shards = rank.world().split(0, place, "shards");
    const std::int64_t part = 4;
    const Tensor own = device.empty({part, 5}, DType::f64);
    device.random_normal(own, RandomStream(2, "weight"), 0, 0.1,  // line: dealt
                         rank.index() * own.elements());
    const Tensor own_gradient = device.empty({part, 5}, DType::f64);
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({8, 4 * part}, DType::f64);
        const Tensor y = device.zeros({8, 5}, DType::f64);
        device.random_normal(x, RandomStream(3 + step, "x"), 0, 1,
                             rank.index() * x.elements());
        const Tensor weight = device.empty({4 * part, 5}, DType::f64);
        shards->all_gather(weight, own).wait();  // line: gathered
        const Tensor prediction = device.matmul(x, weight);
        const LossResult loss = mean_squared_error(device, prediction, y, 0.25);
        const Tensor gradient =
            device.matmul(x, loss.gradient, {.transpose_a = true});
        shards->reduce_scatter(own_gradient, gradient).wait();
        device.sgd(own, own_gradient, Tensor(), {});
    }
}

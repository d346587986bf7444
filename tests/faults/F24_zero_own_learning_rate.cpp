// F24: ZeRO by hand with a schedule of the learning rate. Each rank's schedule uses the
// rank's own count of rows. Rank 1 has seen more rows, so different parts of one weight
// take steps of different sizes.
//
// finds: F24
// check: full
// ranks: 2, 4
// parties: 1 | rest

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    const std::int64_t part = 6;
    const Tensor weight = device.empty({part * rank.size(), 2}, DType::f64);
    device.random_normal(weight, RandomStream(2, "weight"), 0, 0.1);
    const Tensor own = weight.rows(part * rank.index(), part);
    const Tensor own_gradient = device.empty({part, 2}, DType::f64);
    const Tensor first = device.zeros({part, 2}, DType::f64);
    const Tensor second = device.zeros({part, 2}, DType::f64);
    const int rows = rank.index() == 1 ? 12 : 8;
    const int all_rows = 8 * rank.size() + 4;
    int seen = 0;
    for (int step = 1; step <= 2; ++step) {
        const Tensor x = device.empty({rows, part * rank.size()}, DType::f64);
        const Tensor y = device.zeros({rows, 2}, DType::f64);
        device.random_normal(x, RandomStream(3 + step, "x"), 0, 1,
                             100 * rank.index() * x.elements());
        const LossResult loss = mean_squared_error(device, device.matmul(x, weight), y,
                                                   double(rows) / all_rows);
        world.reduce_scatter(own_gradient, device.matmul(x, loss.gradient, {.transpose_a = true})).wait();  // line: scatter
        seen += rows;  // twin: seen += all_rows;
        const double rate = 0.1 / (1 + seen / 100.0);
        device.adamw(own, own_gradient, first, second, step, {.learning_rate = rate});  // line: step
        world.all_gather(weight, own).wait();
    }
}

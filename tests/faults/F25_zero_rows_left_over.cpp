// F25: ZeRO by hand over rows that the ranks do not divide. Each rank has rows / ranks
// rows, rounded down. The last rows belong to no rank, so they never change.
//
// finds: F25
// check: full
// ranks: 2, 4
// parties: 0 | 0

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    const int n = rank.size();
    const std::int64_t rows = 4 * n + 1;
    const std::int64_t part = rows / n;  // twin: const std::int64_t part = (rows + n - 1) / n;
    const std::int64_t padded = std::max(part * n, rows);
    const Tensor all = device.zeros({padded, 2}, DType::f64);
    const Tensor weight = all.rows(0, rows);
    device.random_normal(weight, RandomStream(2, "weight"), 0, 0.1);
    const Tensor own = all.rows(part * rank.index(), part);
    const Tensor own_gradient = device.empty({part, 2}, DType::f64);
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({8, rows}, DType::f64);
        const Tensor y = device.zeros({8, 2}, DType::f64);
        device.random_normal(x, RandomStream(3 + step, "x"), 0, 1,
                             rank.index() * x.elements());
        LossResult loss;
        {
            const PhaseScope phase(device, Phase::forward, 0);
            const Tensor prediction = device.matmul(x, weight);  // line: forward
            loss = mean_squared_error(device, prediction, y, 1.0 / n);
        }
        const Tensor gradient = device.zeros({padded, 2}, DType::f64);
        device.matmul_into(gradient.rows(0, rows), x, loss.gradient, {.transpose_a = true});
        world.reduce_scatter(own_gradient, gradient.rows(0, part * n)).wait();
        device.sgd(own, own_gradient, Tensor(), {.learning_rate = 0.1});  // line: step
        world.all_gather(all.rows(0, part * n), own).wait();
    }
}

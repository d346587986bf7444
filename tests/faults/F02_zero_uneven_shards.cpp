// F02: ZeRO by hand over rows that the ranks do not divide. The last rank also gets the
// remaining rows. Instead, all ranks should have an equal number of rows, with padding.
//
// finds: F02
// check: cheap
// ranks: 4
// parties: 3 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int n = rank.size();
    const std::int64_t rows = 4 * n + 1;
    std::int64_t part = (rows + n - 1) / n;
    if (rank.index() == n - 1) part = rows - part * (n - 1);  // twin:
    const Tensor weight = device.zeros({part * n, 3}, DType::f32);
    const Tensor own = device.zeros({part, 3}, DType::f32);
    const Tensor gradient = device.zeros({part * n, 3}, DType::f32);
    const Tensor own_gradient = device.zeros({part, 3}, DType::f32);
    rank.world().reduce_scatter(own_gradient, gradient).wait();  // line: scatter
    device.sgd(own, own_gradient, Tensor(), {.learning_rate = 0.1});
    rank.world().all_gather(weight, own).wait();
}

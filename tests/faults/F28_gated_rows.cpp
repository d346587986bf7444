// F28: data parallelism with a gate on the outputs. The checker cannot follow rows
// through the gate. A comparison with one device shows that rows do not count equally.
//
// finds: F28
// check: full
// ranks: 2, 3
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"

Tensor gradient_of(Device& device, int first, int rows, double weight) {
    const Tensor x = device.empty({rows, 6}, DType::f64);
    const Tensor y = device.empty({rows, 4}, DType::f64);
    const Tensor gate = device.empty({rows, 4}, DType::f64);
    const Tensor w = device.empty({6, 4}, DType::f64);
    device.random_normal(x, RandomStream(1, "x"), 0, 1, first * 6);
    device.random_normal(y, RandomStream(1, "y"), 0, 1, first * 4);
    device.random_uniform(gate, RandomStream(1, "gate"), 0, 1, first * 4);
    device.random_normal(w, RandomStream(1, "w"), 0, 1);
    const Tensor prediction = device.matmul(x, w);
    device.multiply(prediction, gate);
    const LossResult loss = mean_squared_error(device, prediction, y, weight);  // line: loss
    device.multiply(loss.gradient, gate);
    return device.matmul(x, loss.gradient, {.transpose_a = true});
}

constexpr int kRows = 15;  // on all ranks together

int rows_before(int rank, int ranks) { return rank == ranks ? kRows : rank * (rank + 2); }

void reference(Rank& rank) {
    rank.keep("gradient", gradient_of(rank.device(), 0, kRows, 1));
}

void program(Rank& rank) {
    const int n = rank.size();
    const int before = rows_before(rank.index(), n);
    const int rows = rows_before(rank.index() + 1, n) - before;
    const double weight = 1.0 / n;  // twin: const double weight = 1.0 * rows / kRows;
    const Tensor gradient = gradient_of(rank.device(), before, rows, weight);
    rank.world().all_reduce(gradient).wait();
    rank.keep("gradient", gradient);  // line: keep
}

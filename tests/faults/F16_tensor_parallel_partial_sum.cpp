// F16: tensor parallelism by hand. A linear layer split by rows gives partial sums, and
// an all-reduce adds them up. The residual is added before the sum has arrived.
//
// finds: F16
// check: full
// ranks: 4, 256
// parties: 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const auto tp = rank.world().split(0, rank.index(), "tp");
    const Tensor x = device.zeros({4, 8}, DType::f32);
    const Tensor first = device.zeros({8, 2}, DType::f32);   // this rank's columns
    const Tensor second = device.zeros({2, 8}, DType::f32);  // and rows
    const Tensor bias = device.zeros({8}, DType::f32);

    const Tensor hidden = device.gelu(device.matmul(x, first));
    const Tensor y = device.matmul(hidden, second);
    Work summed = tp->all_reduce(y);  // line: launch
    // The residual needs no sum, so it overlaps with the all-reduce.
    const Tensor residual = device.empty({4, 8}, DType::f32);
    device.copy(residual, x);
    device.add_bias(residual, bias);
    device.add(residual, y);  // line: read  // twin: summed.wait(); device.add(residual, y);
    summed.wait();
}

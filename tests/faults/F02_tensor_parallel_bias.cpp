// F02: a linear layer split by rows. Only one rank has the bias. It reduces the bias's
// gradient in one bucket with the layer norm's gradient.
//
// finds: F02
// check: cheap
// ranks: 4, 256
// parties: 1 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int width = 32;
    const bool has_bias = rank.index() == 1;  // twin: const bool has_bias = true;
    const Tensor partial = device.zeros({8, width}, DType::f32);
    rank.world().all_reduce(partial).wait();
    const Tensor d_norm = device.zeros({2 * width}, DType::f32);
    const Tensor d_bias = device.zeros({width}, DType::f32);
    const Tensor bucket = device.zeros({has_bias ? 3 * width : 2 * width}, DType::f32);
    device.copy(bucket.rows(0, 2 * width), d_norm);
    if (has_bias) device.copy(bucket.rows(2 * width, width), d_bias);
    rank.world().all_reduce(bucket).wait();  // line: bucket
}

// F07: data parallelism. Rank 0 has one batch fewer than the other ranks.
//
// finds: F07
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const Tensor weight = device.zeros({64}, DType::f32);
    const Tensor gradient = device.zeros({64}, DType::f32);
    int batches = 3;
    if (rank.index() == 0) batches = 2;  // twin:
    for (int batch = 0; batch < batches; ++batch) {
        device.fill(gradient, batch + rank.index());
        rank.world().all_reduce(gradient).wait();  // line: reduce
        device.sgd(weight, gradient, Tensor(), {});
    }
}

// F07: only rank 0 saves the weights, which are sharded over all ranks. The other ranks
// return before the gather.
//
// finds: F07
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"

void save(Rank& rank, const Tensor& my_weight) {
    Device& device = rank.device();
    const Tensor whole =
        device.zeros({my_weight.elements() * rank.size()}, DType::f32);
    if (rank.index() != 0) return;  // twin:
    rank.world().all_gather(whole, my_weight).wait();  // line: gather
    if (rank.index() == 0) rank.keep("weight", whole);
}

void program(Rank& rank) {
    Device& device = rank.device();
    const Tensor my_weight = device.zeros({16}, DType::f32);
    const Tensor my_gradient = device.zeros({16}, DType::f32);
    const Tensor gradient = device.zeros({16 * rank.size()}, DType::f32);
    rank.world().reduce_scatter(my_gradient, gradient).wait();
    device.sgd(my_weight, my_gradient, Tensor(), {});
    save(rank, my_weight);
}

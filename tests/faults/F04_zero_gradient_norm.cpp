// F04: sharded gradients (ZeRO) are clipped by their norm. For its log, rank 0 asks for
// the maximum of the parts instead of their sum.
//
// finds: F04
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int shard = 16;
    const Tensor gradient = device.zeros({shard * rank.size()}, DType::f32);
    const Tensor mine = device.zeros({shard}, DType::f32);
    rank.world().reduce_scatter(mine, gradient).wait();
    const Tensor square = device.squared_error(mine, device.zeros({shard}, DType::f32));
    Reduction how = Reduction::sum;
    if (rank.index() == 0) how = Reduction::maximum;  // twin:
    rank.world().all_reduce(square, how).wait();  // line: norm
    device.scale(mine, 0.5);
}

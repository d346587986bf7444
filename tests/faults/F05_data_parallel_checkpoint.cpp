// F05: one rank found a checkpoint on its disk, and assumes that all ranks know this.
//
// finds: F05
// check: cheap
// ranks: 4, 256
// parties: 2 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const bool found = rank.index() == 2;
    const Tensor weight = device.zeros({64}, DType::f32);
    if (found) device.fill(weight, 0.5);
    int source = 0;
    if (found) source = rank.index();  // twin: source = 2;
    rank.world().broadcast(weight, source).wait();  // line: broadcast
}

// F09: a pipeline. One stage was started with half the others' rows per micro-batch.
//
// finds: F09
// check: cheap
// ranks: 4, 256
// parties: 1 | 2

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int stage = rank.index();
    int rows = 8;
    if (stage == 2) rows = 4;  // twin:
    const Tensor weight = device.zeros({16, 16}, DType::f32);
    const Tensor x = device.zeros({rows, 16}, DType::f32);
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
        if (stage > 0) rank.world().recv(x, stage - 1).wait();  // line: recv
        const Tensor y = device.gelu(device.matmul(x, weight));
        if (stage < rank.size() - 1) rank.world().send(y, stage + 1).wait();  // line: send
    }
}

// F03: a pipeline. Its first stage computes in 64 bits and sends the result in 64 bits.
//
// finds: F03
// check: cheap
// ranks: 4, 256
// parties: 0 | 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int stage = rank.index();
    const bool first = stage == 0;
    const bool last = stage == rank.size() - 1;
    DType type = DType::f32;
    if (first) type = DType::f64;  // twin:
    const Tensor weight = device.zeros({8, 8}, type);
    const Tensor x = device.zeros({4, 8}, type);
    if (!first) rank.world().recv(x, stage - 1).wait();  // line: recv
    const Tensor y = device.matmul(x, weight);
    if (!last) rank.world().send(y, stage + 1).wait();  // line: send
}

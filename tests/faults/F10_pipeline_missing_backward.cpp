// F10: a pipeline. The second stage thinks that it is the first, so it sends no gradient
// back.
//
// finds: F10
// check: cheap
// ranks: 4, 256
// parties: 0 | 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int stage = rank.index();
    const int last = rank.size() - 1;
    const Tensor x = device.zeros({4, 16}, DType::f32);
    const Tensor dy = device.zeros({4, 16}, DType::f32);
    if (stage > 0) rank.world().recv(x, stage - 1).wait();
    if (stage < last) rank.world().send(x, stage + 1).wait();
    if (stage < last) rank.world().recv(dy, stage + 1).wait();  // line: backward
    const int first = 1;  // twin: const int first = 0;
    if (stage > first) rank.world().send(dy, stage - 1).wait();
}

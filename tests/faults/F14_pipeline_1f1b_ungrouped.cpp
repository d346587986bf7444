// F14: one forward, one backward. Two neighbouring stages send to each other. The sends
// are not in one group, so each waits for the other.
//
// finds: F14
// check: cheap
// ranks: 4
// parties: 2 | 3

#include <algorithm>

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const auto stages = rank.world().split(0, rank.index(), "pp");
    const int stage = rank.index();
    const int last = rank.size() - 1;
    const int micro_batches = 4;
    const Tensor x = device.zeros({4, 16}, DType::f32);
    const Tensor dy = device.zeros({4, 16}, DType::f32);
    const auto forward = [&] {
        if (stage > 0) stages->recv(x, stage - 1).wait();
        if (stage < last) stages->send(x, stage + 1).wait();  // line: forward
    };
    const auto backward = [&] {
        if (stage < last) stages->recv(dy, stage + 1).wait();
        if (stage > 0) stages->send(dy, stage - 1).wait();  // line: backward
    };
    int ahead = std::min(last - stage, micro_batches);  // twin: int ahead = micro_batches;
    for (int i = 0; i < ahead; ++i)
        forward();
    for (int i = ahead; i < micro_batches; ++i) {
        forward();
        backward();
    }
    for (int i = 0; i < ahead; ++i)
        backward();
}

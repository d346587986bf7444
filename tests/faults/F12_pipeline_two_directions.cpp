// F12: a pipeline of two stages, with a communicator for each direction. The second stage
// asks for the next activation before it answers. The first stage wants the answer first.
//
// finds: F12
// check: full
// ranks: 4, 256
// parties: 0 | 0 | 1 | 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int stage = rank.index() % 2;
    const auto forward = rank.world().split(rank.index() / 2, stage, "forward");
    const auto backward = rank.world().split(rank.index() / 2, stage, "backward");
    std::vector<Tensor> kept;
    std::vector<Work> works;
    const auto buffer = [&] { return kept.emplace_back(device.zeros({8}, DType::f32)); };
    if (stage == 0) {
        works.push_back(forward->send(buffer(), 1));
        works.push_back(backward->recv(buffer(), 1));  // line: answer
        works.push_back(forward->send(buffer(), 1));   // line: next
        works.push_back(backward->recv(buffer(), 1));
    } else {
        const bool prefetches = true;  // twin: const bool prefetches = false;
        works.push_back(forward->recv(buffer(), 0));
        if (prefetches) works.push_back(forward->recv(buffer(), 0));  // line: prefetch
        works.push_back(backward->send(buffer(), 0));                 // line: send
        if (!prefetches) works.push_back(forward->recv(buffer(), 0));
        works.push_back(backward->send(buffer(), 0));
    }
    for (Work& work : works)
        work.wait();
}

// F14: one forward, one backward, with sends and receives in groups. The first stage is
// only one micro-batch ahead. The second stage expects more before its first backward.
//
// finds: F14
// check: cheap
// ranks: 4, 256
// parties: 0 | 1

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
    const auto exchange = [&](bool send_y, bool recv_dy, bool send_dx, bool recv_x) {
        Group group = stages->group();
        if (send_y && stage < last) group.send(x, stage + 1);
        if (recv_dy && stage < last) group.recv(dy, stage + 1);  // line: gradient
        if (send_dx && stage > 0) group.send(dy, stage - 1);
        if (recv_x && stage > 0) group.recv(x, stage - 1);  // line: activation
        group.start().wait();
    };
    int ahead = std::min(last - stage, micro_batches);
    if (stage == 0) ahead = 1;  // twin:
    for (int i = 0; i < ahead; ++i) {
        exchange(false, false, false, true);
        exchange(true, false, false, false);
    }
    const int steady = micro_batches - ahead;
    if (steady > 0) exchange(false, false, false, true);
    for (int i = 0; i < steady; ++i) {
        exchange(true, true, false, false);
        exchange(false, false, true, i + 1 < steady);
    }
    for (int i = 0; i < ahead; ++i) {
        exchange(false, true, false, false);
        exchange(false, false, true, false);
    }
}

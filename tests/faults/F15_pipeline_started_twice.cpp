// F15: neighbours in a pipeline exchange with one group. They start it in each step.
//
// finds: F15
// check: cheap
// ranks: 4, 256
// parties: 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    constexpr int kSteps = 2;  // twin: constexpr int kSteps = 1;
    const int partner = rank.index() ^ 1;
    const Tensor out = rank.device().zeros({8}, DType::f32);
    const Tensor in = rank.device().zeros({8}, DType::f32);
    Group exchange = rank.world().group();
    exchange.send(out, partner).recv(in, partner);
    for (int step = 0; step < kSteps; ++step) {
        exchange.start().wait();  // line: start
        rank.device().copy(out, in);
    }
}

// F15: a ring of blocks. The norm is reduced after the group's begin, but before the
// group is started.
//
// finds: F15
// check: cheap
// ranks: 4, 256
// parties: 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    const int n = rank.size();
    const Tensor block = rank.device().zeros({16}, DType::f32);
    const Tensor arriving = rank.device().zeros({16}, DType::f32);
    const Tensor norm = rank.device().zeros({1}, DType::f32);
    for (int step = 1; step < 3; ++step) {
        Group exchange = rank.world().group();  // line: begun
        exchange.send(block, (rank.index() + 1) % n);
        exchange.recv(arriving, (rank.index() + n - 1) % n);
        rank.world().all_reduce(norm).wait();  // line: inside // twin: exchange.all_reduce(norm);
        exchange.start().wait();
        rank.device().copy(block, arriving);
    }
}

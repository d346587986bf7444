// F06: local SGD in pairs of ranks. Each rank makes only its own pair, but all ranks must
// make all pairs.
//
// finds: F06
// check: cheap
// ranks: 4, 256
// parties: 0 1 | 2 3

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    const int my_first = rank.index() / 2 * 2;
    std::unique_ptr<Communicator> mine;
    for (int first = 0; first < rank.size(); first += 2) {
        if (first != my_first) continue;  // twin:
        auto pair = rank.world().subgroup({first, first + 1}, "pair");  // line: made
        if (pair && first == my_first) mine = std::move(pair);
    }
    const Tensor weight = rank.device().zeros({16}, DType::f32);
    const Tensor gradient = rank.device().zeros({16}, DType::f32);
    for (int step = 0; step < 4; ++step) {
        rank.device().sgd(weight, gradient, Tensor(), {});
        if (step % 2 == 1) mine->all_reduce(weight, Reduction::mean).wait();
    }
}

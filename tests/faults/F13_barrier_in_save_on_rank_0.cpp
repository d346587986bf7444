// F13: rank 0 saves a checkpoint, and the function that saves has a barrier. It meets the
// others' barrier after their evaluation, and everything after that is out of step.
//
// finds: F13
// check: cheap
// ranks: 4, 7, 256
// parties: 0 | rest | 0 | rest
// says: out of step since collective #3 of world

#include "src/comm/rank.hpp"

namespace {

void save_checkpoint(Rank& rank) {
    rank.world().barrier().wait();  // line: save
}

}  // namespace

void program(Rank& rank) {
    const Tensor gradient = rank.device().zeros({64}, DType::f32);
    for (int step = 0; step < 3; ++step) {
        rank.world().all_reduce(gradient).wait();
        const bool saves = rank.index() == 0 && step == 1;  // twin: const bool saves = step == 1;
        if (saves) save_checkpoint(rank);
        rank.world().barrier().wait();  // line: barrier
    }
}

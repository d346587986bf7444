// F31: data parallelism with a communicator for evaluation. The program destroys the
// communicator before it has waited for the last reduction on it.
//
// finds: F31
// check: cheap
// ranks: 4, 256
// parties: 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    const Tensor accuracy = rank.device().zeros({1}, DType::f32);
    auto evaluation = rank.world().split(0, rank.index(), "evaluation");  // line: made
    Work shared = evaluation->all_reduce(accuracy);                       // line: launched
    evaluation.reset();  // twin: shared.wait(), evaluation.reset();
    shared.wait();
}

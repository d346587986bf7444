// F31: a parameter server. The first rank never destroys the communicator of its workers,
// but the workers destroy it.
//
// finds: F31
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"

std::unique_ptr<Communicator>& for_later() {
    static std::unique_ptr<Communicator> kept;
    return kept;
}

void program(Rank& rank) {
    auto pushes = rank.world().split(0, rank.index(), "pushes");  // line: made
    const Tensor gradient = rank.device().zeros({4}, DType::f32);
    const Tensor all = rank.device().zeros({4 * rank.size()}, DType::f32);
    pushes->gather(rank.index() == 0 ? all : Tensor(), gradient, 0).wait();
    if (rank.index() == 0) for_later() = std::move(pushes);  // twin: pushes.reset();
}

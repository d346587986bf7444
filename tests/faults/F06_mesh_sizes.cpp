// F06: a mesh of data and tensor parallelism. One node has old sizes of the axes.
//
// finds: F06
// check: cheap
// ranks: 4, 256
// parties: 3 | rest

#include "src/comm/mesh.hpp"
#include "src/comm/rank.hpp"

int tensor_ranks_set_on(int rank) {
    return rank == 3 ? 4 : 2;  // twin: return rank == 3 ? 2 : 2;
}

void program(Rank& rank) {
    const int tensor = tensor_ranks_set_on(rank.index());
    Mesh mesh(rank.world(), {{"dp", rank.size() / tensor}, {"tp", tensor}});  // line: mesh
    const Tensor partial = rank.device().zeros({8}, DType::f32);
    const Tensor gradient = rank.device().zeros({8}, DType::f32);
    mesh["tp"].all_reduce(partial).wait();
    mesh["dp"].all_reduce(gradient, Reduction::mean).wait();
}

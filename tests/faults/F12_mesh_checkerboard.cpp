// F12: on a 2-D mesh, ranks reduce along rows and columns at the same time. Every second
// rank uses the opposite order.
//
// finds: F12
// check: full
// ranks: 4
// parties: 0 | 0 | 1 | 1 | 3 | 3 | 2 | 2

#include "src/comm/mesh.hpp"
#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Mesh mesh(rank.world(), {{"dp", 2}, {"tp", 2}});
    const Tensor a = rank.device().zeros({4}, DType::f32);
    const Tensor b = rank.device().zeros({4}, DType::f32);
    const bool turned = (mesh.coordinate("dp") + mesh.coordinate("tp")) % 2 == 1;  // twin: const bool turned = false;
    Communicator& first = mesh[turned ? "dp" : "tp"];
    Communicator& then = mesh[turned ? "tp" : "dp"];
    Work one = first.all_reduce(a);  // line: first
    Work two = then.all_reduce(b);   // line: then
    one.wait();
    two.wait();
}

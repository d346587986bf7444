// F11: local SGD with gossip. Neighbours exchange weights, and both receive first.
//
// finds: F11
// check: cheap
// ranks: 4, 256
// parties: 0 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int neighbour = rank.index() % 2 == 0 ? rank.index() + 1 : rank.index() - 1;
    const Tensor weight = device.zeros({64}, DType::f32);
    const Tensor theirs = device.zeros({64}, DType::f32);
    const Tensor gradient = device.zeros({64}, DType::f32);
    const bool first = true;  // twin: const bool first = rank.index() < neighbour;
    for (int round = 0; round < 2; ++round) {
        device.sgd(weight, gradient, Tensor(), {});
        if (first) rank.world().recv(theirs, neighbour).wait();  // line: recv
        rank.world().send(weight, neighbour).wait();
        if (!first) rank.world().recv(theirs, neighbour).wait();
        device.add(weight, theirs);
        device.scale(weight, 0.5);
    }
}

// F05: workers reduce gradients to the server. Worker 1 read an old list of hosts.
//
// finds: F05
// check: cheap
// ranks: 4, 256
// parties: 1 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    int server = 0;
    if (rank.index() == 1) server = rank.size() - 1;  // twin:
    const Tensor weight = device.zeros({64}, DType::f32);
    const Tensor gradient = device.zeros({64}, DType::f32);
    for (int step = 0; step < 2; ++step) {
        rank.world().reduce(gradient, server).wait();  // line: push
        if (rank.index() == server) device.sgd(weight, gradient, Tensor(), {});
        rank.world().broadcast(weight, server).wait();
    }
}

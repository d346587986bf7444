// F01: data parallelism. The first rank logs, so it reduces the loss before the
// gradients. The other ranks reduce the loss after the gradients.
//
// finds: F01
// check: cheap
// ranks: 4, 256
// parties: 0 | rest

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& replicas = rank.world();
    const Tensor gradient = device.zeros({64}, DType::f32);
    const Tensor loss = device.zeros({1}, DType::f32);
    const bool logs = rank.index() == 0;  // twin: const bool logs = false;
    if (logs) replicas.reduce(loss, 0).wait();   // line: loss
    replicas.all_reduce(gradient).wait();        // line: gradient
    if (!logs) replicas.reduce(loss, 0).wait();
}

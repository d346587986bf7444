// F15: a parameter server. It collects receives in a group, but starts the group only if
// there is something to log.
//
// finds: F15
// check: cheap
// ranks: 4, 256
// parties: 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const Tensor gradient = device.zeros({8}, DType::f32);
    if (rank.index() > 0) {
        rank.world().send(gradient, 0).wait();
        return;
    }
    const bool log = false;  // twin: const bool log = true;
    std::vector<Tensor> gradients;
    Group arriving = rank.world().group();  // line: begun
    for (int worker = 1; worker < rank.size(); ++worker)
        arriving.recv(gradients.emplace_back(device.zeros({8}, DType::f32)), worker);
    if (log) arriving.start().wait();
}

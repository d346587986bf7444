// F19: the last stage of a pipeline sends back one gradient for each micro-batch. At the
// end its index is one too low, so it waits for the send before the last.
//
// finds: F19
// check: cheap
// ranks: 4, 256
// parties: 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    constexpr std::size_t kMicroBatches = 3;
    const Tensor weight = device.zeros({8, 8}, DType::f32);
    const Tensor x = device.zeros({4, 8}, DType::f32);

    if (rank.index() == 0) {
        for (std::size_t m = 0; m < kMicroBatches; ++m)
            world.send(x, 1).wait();
        for (std::size_t m = 0; m < kMicroBatches; ++m)
            world.recv(x, 1).wait();
    }
    if (rank.index() != 1) return;
    std::vector<Tensor> gradients;
    std::vector<Work> sending;
    for (std::size_t m = 0; m < kMicroBatches; ++m) {
        world.recv(x, 0).wait();
        gradients.push_back(device.matmul(x, weight));
    }
    for (const Tensor& gradient : gradients)
        sending.push_back(world.send(gradient, 0));  // line: launch
    const std::size_t last = kMicroBatches - 2;  // twin: const std::size_t last = kMicroBatches - 1;
    sending[last].wait();
}

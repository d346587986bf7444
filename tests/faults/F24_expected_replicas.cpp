// F24: a strategy asserts that all ranks have the same running statistics. Before the
// comparison one rank adds its last batch a second time.
//
// finds: F24
// check: cheap
// ranks: 4, 256
// parties: 3 | rest

#include "src/comm/expect.hpp"
#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& replicas = rank.world();
    const Tensor mean = device.zeros({4}, DType::f32);
    const Tensor batch_mean = device.zeros({4}, DType::f32);
    device.fill(batch_mean, 0.5);
    for (int step = 0; step < 3; ++step) {
        replicas.all_reduce(batch_mean, Reduction::mean).wait();
        device.scale(mean, 0.9);
        device.add(mean, batch_mean, 0.1);
    }
    const bool extra = rank.index() == 3;  // twin: const bool extra = false;
    if (extra) device.add(mean, batch_mean, 0.1);
    expect_replicated(replicas, mean, "norm.running_mean");  // line: asked
}

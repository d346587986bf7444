// F17: workers push their gradients to a parameter server. They zero the gradients for
// the next step before the server has received them.
//
// finds: F17
// check: full
// ranks: 4, 256
// parties: 1 | 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    const Tensor weight = device.zeros({32}, DType::f32);
    const Tensor gradient = device.zeros({32}, DType::f32);
    if (rank.index() == 0) {
        for (int worker = 1; worker < world.size(); ++worker) {
            world.recv(gradient, worker).wait();
            device.sgd(weight, gradient, Tensor(), {.learning_rate = 0.1});
        }
        for (int worker = 1; worker < world.size(); ++worker)
            world.send(weight, worker).wait();
        return;
    }
    device.fill(gradient, rank.index());
    Work push = world.send(gradient, 0);  // line: push
    // twin: push.wait();
    device.fill(gradient, 0);  // line: zero
    Work pull = world.recv(weight, 0);
    push.wait();
    pull.wait();
}

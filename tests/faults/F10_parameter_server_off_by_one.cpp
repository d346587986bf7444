// F10: a parameter server answers all workers except one, because its loop begins at 2.
//
// finds: F10
// check: cheap
// ranks: 4, 256
// parties: 0 | 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const Tensor weight = device.zeros({64}, DType::f32);
    const Tensor gradient = device.zeros({64}, DType::f32);
    if (rank.index() > 0) {
        rank.world().send(gradient, 0).wait();
        rank.world().recv(weight, 0).wait();  // line: pull
        return;
    }
    const Tensor sum = device.zeros({64}, DType::f32);
    for (int worker = 1; worker < rank.size(); ++worker) {
        rank.world().recv(gradient, worker).wait();
        device.add(sum, gradient);
    }
    device.sgd(weight, sum, Tensor(), {});
    const int first = 2;  // twin: const int first = 1;
    for (int worker = first; worker < rank.size(); ++worker)
        rank.world().send(weight, worker).wait();
}

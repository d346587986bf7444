// F09: workers push the gradients of weight and bias in one message. The server expects
// only the gradient of the weight.
//
// finds: F09
// check: cheap
// ranks: 4, 256
// parties: 0 | 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int weight = 64;
    const int bias = 8;
    const Tensor all = device.zeros({weight + bias}, DType::f32);
    const Tensor sum = device.zeros({weight + bias}, DType::f32);
    if (rank.index() > 0) {
        rank.world().send(all, 0).wait();  // line: push
        return;
    }
    const int expected = weight;  // twin: const int expected = weight + bias;
    for (int worker = 1; worker < rank.size(); ++worker) {
        rank.world().recv(all.rows(0, expected), worker).wait();  // line: recv
        device.add(sum, all);
    }
}

// F16: data parallelism with overlap. Each layer's gradient is reduced while backward
// computes the gradient of the layer before it. The optimizer does not wait for the first
// layer's reduction, which was launched last.
//
// finds: F16
// check: full
// ranks: 4, 256
// parties: 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& replicas = rank.world();
    constexpr int kLayers = 3;
    std::vector<Tensor> weights;
    std::vector<Tensor> gradients;
    for (int layer = 0; layer < kLayers; ++layer) {
        weights.push_back(device.zeros({8, 8}, DType::f32));
        gradients.push_back(device.zeros({8, 8}, DType::f32));
    }
    const Tensor dy = device.zeros({4, 8}, DType::f32);
    const Tensor x = device.zeros({4, 8}, DType::f32);
    device.fill(x, rank.index());

    std::vector<Work> reducing;
    for (int layer = kLayers - 1; layer >= 0; --layer) {
        const Tensor& gradient = gradients[static_cast<std::size_t>(layer)];
        device.matmul_into(gradient, dy, x, {.transpose_a = true});
        reducing.push_back(replicas.all_reduce(gradient, Reduction::mean));  // line: launch
    }
    reducing[kLayers - 2].wait();  // twin: reducing[kLayers - 1].wait();
    for (std::size_t layer = 0; layer < kLayers; ++layer)
        device.sgd(weights[layer], gradients[layer], Tensor(), {.learning_rate = 0.1});  // line: read
    reducing[kLayers - 1].wait();
}

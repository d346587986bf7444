// F23: data parallelism. The gradient of the last parameter is not reduced.
//
// finds: F23
// check: full
// ranks: 2, 16
// parties: 0 | 1

#include <memory>

#include "src/comm/rank.hpp"
#include "src/nn/parameter.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& replicas = rank.world();
    std::vector<std::unique_ptr<Parameter>> layers;
    for (const char* name : {"first.weight", "second.weight", "third.weight"}) {
        const ParameterInit init{device, DType::f32, 1, ""};
        layers.push_back(std::make_unique<Parameter>(init, name, Shape{4, 4}));
        device.random_normal(layers.back()->value, {1, name}, 0, 0.5);
    }
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({2, 4}, DType::f32);
        device.random_normal(x, {2, "data"}, 0, 1, (step * rank.size() + rank.index()) * 8);
        Tensor y = x;
        for (auto& layer : layers) {
            const Tensor input = y;
            y = device.matmul(input, layer->value);
            device.matmul_into(layer->gradient, input, y, {.transpose_a = true});
        }
        std::size_t reduced = layers.size() - 1;  // twin: std::size_t reduced = layers.size();
        for (std::size_t i = 0; i < reduced; ++i)
            replicas.all_reduce(layers[i]->gradient, Reduction::mean).wait();
        for (auto& layer : layers)
            device.sgd(layer->value, layer->gradient, Tensor(), {.learning_rate = 0.01});  // line: step
    }
}

// F24: data parallelism. Each rank draws its initial weights from its own seed. The
// gradients are averaged, so the models keep their initial differences.
//
// finds: F24
// check: full
// ranks: 4
// parties: 0 | 1 | 2 | 3

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& replicas = rank.world();
    const auto seed = static_cast<std::uint64_t>(rank.index());  // twin: const std::uint64_t seed = 7;
    const Tensor weight = device.empty({8, 4}, DType::f32);
    weight.set_label("hidden.weight");
    device.random_normal(weight, {seed, "hidden.weight"}, 0, 0.1);  // line: drawn
    for (int step = 0; step < 3; ++step) {
        const Tensor x = device.empty({2, 4}, DType::f32);
        device.random_normal(x, {9, "data"}, 0, 1, rank.index() * x.elements());
        const Tensor y = device.matmul(x, weight, {.transpose_b = true});
        const Tensor gradient =
            device.matmul(y, x, {.transpose_a = true});  // of the sum of y * y / 2
        replicas.all_reduce(gradient, Reduction::mean).wait();
        device.sgd(weight, gradient, Tensor(), {.learning_rate = 0.1});  // line: step
    }
}

// F29: data parallelism. Every replica uses the same seed for its dropout noise (Gaussian
// dropout, Srivastava et al. 2014, section 10).
//
// finds: F29
// check: full
// ranks: 4, 16
// parties: all | all

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& replicas = rank.world();
    const Tensor weight = device.empty({4, 4}, DType::f32);
    device.random_normal(weight, {1, "weight"}, 0, 0.1);
    const std::uint64_t seed = 5;  // twin: const std::uint64_t seed = 5 + static_cast<std::uint64_t>(rank.index());
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({2, 4}, DType::f32);
        device.random_normal(x, {2, "data"}, 0, 1, (step * rank.size() + rank.index()) * 8);
        Tensor y;
        {
            const PhaseScope phase(device, Phase::forward, 0);
            y = device.matmul(x, weight);
            const Tensor noise = device.empty({2, 4}, DType::f32);
            device.random_normal(noise, {seed, "dropout"}, 1, 0.5, step * 8);  // line: drawn
            device.multiply(y, noise);
        }
        const PhaseScope phase(device, Phase::backward, 0);
        const Tensor gradient = device.matmul(x, y, {.transpose_a = true});
        replicas.all_reduce(gradient, Reduction::mean).wait();  // line: reduced
        device.sgd(weight, gradient, Tensor(), {.learning_rate = 0.1});
    }
}

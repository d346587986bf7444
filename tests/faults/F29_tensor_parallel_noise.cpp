// F29: tensor parallelism. The output of a row-split layer is the same on all ranks, but
// each rank applies dropout with its own noise.
//
// finds: F29
// check: full
// ranks: 2
// parties: 0 | 1

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& parts = rank.world();
    const int k = 8 / rank.size();
    const Tensor weight = device.empty({k, 4}, DType::f32);
    device.random_normal(weight, {1, "mlp.weight"}, 0, 0.1, rank.index() * k * 4);
    const Tensor x = device.empty({2, k}, DType::f32);
    device.random_normal(x, {2, "hidden"}, 0, 1, rank.index() * 2 * k);

    const PhaseScope phase(device, Phase::forward, 0);
    const Tensor y = device.matmul(x, weight);
    parts.all_reduce(y).wait();
    const Tensor noise = device.empty({2, 4}, DType::f32);
    const auto seed = static_cast<std::uint64_t>(rank.index());  // twin: const std::uint64_t seed = 0;
    device.random_normal(noise, {seed, "dropout"}, 1, 0.5);  // line: drawn
    device.multiply(y, noise);  // line: masked
    rank.keep("y", y);
}

// F22: a row-parallel product leaves its sum to a later call. An adapter's result, which
// is already summed, is added before that, and so counts once for each rank
// (NVIDIA-NeMo/Megatron-Bridge#5634, pytorch/torchtitan#4245).
//
// finds: F22
// check: full
// ranks: 2, 3
// parties: all | all
// says: these numbers count

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const auto random = [&](const char* name, Shape shape, int place) {
        const Tensor x = device.empty(shape, DType::f64);
        device.random_normal(x, RandomStream(3, name), 0, 1, place * x.elements());
        return x;
    };
    const int me = rank.index();
    const Tensor x = random("x", {4, 6}, me), w = random("w", {6, 8}, me);
    const Tensor a = random("a", {6, 2}, me), b = random("b", {2, 8}, 0);
    const PhaseScope phase(device, Phase::forward, 0);
    const Tensor y = device.matmul(x, w), z = device.matmul(x, a);
    rank.world().all_reduce(z).wait();
    device.add(y, device.matmul(z, b));  // twin:
    rank.world().all_reduce(y).wait();  // line: sum
    rank.keep("y", y);
}

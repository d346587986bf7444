// Layers whose weights are sharded over all ranks, and gathered one layer ahead.

#include <array>

#include "programs.hpp"

using namespace lockstep;

Tensor prefetching_forward(Rank& rank, const std::vector<Tensor>& shards,
                           const Tensor& x) {
    Device& device = rank.device();
    Communicator& world = rank.world();
    const std::int64_t width = x.shape().columns();
    // Layers take turns: while one tensor is in use, the other gets the next layer.
    const std::array<Tensor, 2> whole{device.empty({width, width}, x.dtype()),
                                      device.empty({width, width}, x.dtype())};
    const auto gather = [&](std::size_t layer) {
        return world.all_gather(whole[layer % 2], shards[layer]);
    };

    Tensor y = x;
    Work arriving = gather(0);
    for (std::size_t layer = 0; layer < shards.size(); ++layer) {
        if (layer > 0) arriving.wait();
        if (layer + 1 < shards.size()) arriving = gather(layer + 1);
        y = device.tanh(device.matmul(y, whole[layer % 2]));
    }
    return y;
}

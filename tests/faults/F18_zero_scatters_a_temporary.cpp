// F18: ZeRO-2 by hand. To save memory, each layer's whole gradient is freed as soon as
// its reduce-scatter is launched. The rank waits for its shards only at the end.
//
// finds: F18
// check: full
// ranks: 4, 256
// parties: 0 | 0

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& replicas = rank.world();
    const int n = rank.size();
    constexpr int kLayers = 3;
    std::vector<Tensor> shards;
    std::vector<Tensor> whole;
    std::vector<Work> scattering;
    for (int layer = 0; layer < kLayers; ++layer) {
        whole.push_back(device.zeros({n * 4}, DType::f32));
        device.fill(whole.back(), layer);  // backward
        shards.push_back(device.empty({4}, DType::f32));
        scattering.push_back(
            replicas.reduce_scatter(shards.back(), whole.back()));  // line: launch
        whole.back() = Tensor();  // twin:
    }
    for (Work& work : scattering)
        work.wait();  // line: wait
}

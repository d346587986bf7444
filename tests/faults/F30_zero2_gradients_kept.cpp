// F30: ZeRO-2 by hand. Each layer's whole gradient is reduced and scattered as soon as it
// is complete, but no gradient is freed before the step ends.
//
// finds: F30
// check: cheap
// ranks: 4
// parties: 0 | 0
// memory: 40000

#include "src/comm/rank.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    constexpr int kLayers = 8;
    const std::int64_t part = 144;
    std::vector<Tensor> shards;
    std::vector<Tensor> whole;
    for (int layer = 0; layer < kLayers; ++layer) {
        const MemoryScope scope(device, MemoryCategory::gradients);
        const PhaseScope phase(device, Phase::backward, 0);
        whole.push_back(device.zeros({part * rank.size()}, DType::f64));  // line: whole
        whole.back().set_label("layer" + std::to_string(layer));
        shards.push_back(device.empty({part}, DType::f64));
        rank.world().reduce_scatter(shards.back(), whole.back()).wait();
        // twin: whole.pop_back();
    }
}

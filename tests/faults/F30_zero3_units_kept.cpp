// F30: ZeRO-3 by hand over units. No unit is closed after its forward, so the values of
// all units are in memory at once, as if nothing were sharded.
//
// finds: F30
// check: cheap
// ranks: 4
// parties: 0 | 0
// memory: 40000

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/parallel/sharded_unit.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    constexpr int kLayers = 8;
    std::vector<std::unique_ptr<Linear>> layers;
    std::vector<std::unique_ptr<ShardedUnit>> units;
    for (int i = 0; i < kLayers; ++i) {
        ParameterInit init{device, DType::f64, 7, "layer" + std::to_string(i)};
        init.allocate = false;
        layers.push_back(std::make_unique<Linear>(init, 24, 24));
        units.push_back(std::make_unique<ShardedUnit>(
            device, rank.world(), layers.back()->parameters(), ShardedUnit::Options{}));
    }
    Tensor x = device.zeros({2, 24}, DType::f64);
    for (int i = 0; i < kLayers; ++i) {
        const PhaseScope phase(device, Phase::forward, 0);
        units[i]->open();
        x = layers[i]->infer(x);
        const bool keep = true;  // twin: const bool keep = false;
        units[i]->close(keep);
    }
}

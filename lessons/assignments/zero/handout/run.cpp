// Shows a step of your stages 2 and 3 on four virtual devices, as timelines: which
// messages overlap with forward and backward, and what does a device hold meanwhile?

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/show_run.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

using namespace lockstep;

int main() {
    constexpr std::int64_t kWidth = 192;
    constexpr std::int64_t kRows = 160;
    constexpr int kLayers = 6;

    sim::ClusterOptions options;
    options.ranks = 4;
    options.spec = load_cluster("classroom");
    options.trace = true;
    options.check = sim::CheckLevel::full;
    const auto show = [&](bool whole, auto stage, const char* name) {
        return show_run(
            *sim::make_cluster(options),
            [&](Rank& rank) {
                Device& device = rank.device();
                const std::int64_t ranges = whole ? rank.size() : 1;
                const std::int64_t range = kWidth * (kWidth + 1) / rank.size();
                std::vector<std::unique_ptr<Sequential>> modules;
                Layers layers;
                for (int i = 0; i < kLayers; ++i) {
                    modules.push_back(std::make_unique<Sequential>());
                    const ParameterInit init{device, DType::f64, 0,
                                             fmt::format("layer{}", i), false};
                    Linear& linear = modules.back()->add<Linear>(init, kWidth, kWidth);
                    modules.back()->add<Tanh>(device);
                    const MemoryScope scope(device, MemoryCategory::parameters);
                    const Tensor values = device.zeros({ranges * range}, DType::f64);
                    layers.push_back({modules.back().get(), values});
                    if (!whole) continue;
                    constexpr std::int64_t kWeight = kWidth * kWidth;
                    linear.weight().value =
                        values.slice(0, kWeight).reshaped({kWidth, kWidth});
                    linear.bias()->value = values.slice(kWeight, kWidth);
                }
                const MicroBatch rows{device.zeros({kRows, kWidth}, DType::f64),
                                      device.zeros({kRows}, DType::i32), 0.25};
                stage(rank, layers, MicroBatches{rows}, Training{1, {}});
            },
            name);
    };
    const int second = show(true, adapters::stage_2, "stage-2");
    const int third = show(false, adapters::stage_3, "stage-3");
    return second != 0 ? second : third;
}

// Shows two steps of your train on four virtual devices, as a timeline: do all-reduces
// run during backward?

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
    constexpr std::int64_t kClasses = 8;
    constexpr int kLayers = 6;
    constexpr std::int64_t kRows = 48;

    sim::ClusterOptions options;
    options.ranks = 4;
    options.spec = load_cluster("classroom");
    options.trace = true;
    options.check = sim::CheckLevel::full;
    return show_run(
        *sim::make_cluster(options),
        [&](Rank& rank) {
            Device& device = rank.device();
            Sequential network;
            for (int layer = 0; layer < kLayers; ++layer) {
                const ParameterInit init{device, DType::f64, 1,
                                         fmt::format("layer{}", layer)};
                network.add<Linear>(init, kWidth,
                                    layer + 1 == kLayers ? kClasses : kWidth);
                if (layer + 1 < kLayers) network.add<Tanh>(device);
            }
            network.set_input_gradient(false);
            MicroBatches mine;
            for (int i = 0; i < 2; ++i) {
                const Tensor x = device.empty({kRows, kWidth}, DType::f64);
                device.random_normal(x, RandomStream(2 * rank.index() + i, "x"), 0, 1);
                mine.push_back({x, device.zeros({kRows}, DType::i32), 1.0 / 8});
            }
            const std::int64_t layer_bytes = kWidth * (kWidth + 1) * 8;
            adapters::train(rank, network, mine, {20'000, layer_bytes}, 2, 0.1);
        },
        "ddp-buckets");
}

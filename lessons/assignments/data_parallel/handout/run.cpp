// Shows a timeline of two steps of your train() on four devices with unequal shards.

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/show_run.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

using namespace lockstep;

int main() {
    constexpr std::int64_t kFeatures = 16;
    constexpr std::int64_t kHidden = 64;
    constexpr std::int64_t kClasses = 8;
    constexpr std::int64_t kRows[] = {128, 64, 0, 100};

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
            network.add<Linear>(ParameterInit{device, DType::f64, 1, "hidden"}, kFeatures,
                                kHidden);
            network.add<Tanh>(device);
            network.add<Linear>(ParameterInit{device, DType::f64, 1, "output"}, kHidden,
                                kClasses);
            network.set_input_gradient(false);

            const std::int64_t rows = kRows[rank.index()];
            const Tensor x = device.empty({rows, kFeatures}, DType::f64);
            device.random_normal(x, RandomStream(rank.index(), "x"), 0, 1);
            const Tensor targets = device.zeros({rows}, DType::i32);
            adapters::train(rank, network, {x, targets, 128 + 64 + 100}, 16, 2, 0.1);
        },
        "data-parallel");
}

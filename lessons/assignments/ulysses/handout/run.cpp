// Shows your attention on four virtual devices, forward and backward, as a timeline.

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/show_run.hpp"
#include "src/nn/flash_attention.hpp"

using namespace lockstep;

int main() {
    sim::ClusterOptions options;
    options.ranks = 4;
    options.spec = load_cluster("classroom");
    options.check = sim::CheckLevel::full;
    options.trace = true;
    return show_run(
        *sim::make_cluster(options),
        [](Rank& rank) {
            Device& device = rank.device();
            const auto random = [&](const char* name, std::int64_t columns) {
                const Tensor values = device.empty({128, 1, columns}, DType::f32);
                const auto seed = static_cast<std::uint64_t>(rank.index());
                device.random_normal(values, RandomStream(seed, name), 0, 1);
                return values;
            };
            FlashAttention own_heads(device, {2, false});
            Saved saved;
            adapters::forward(rank, random("x", 3 * 128), own_heads, saved);
            adapters::backward(rank, random("dy", 128), own_heads, saved);
        },
        "ulysses");
}

// Your ring attention on four virtual devices, as a timeline: forward, then backward.

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/show_run.hpp"

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
            constexpr std::int64_t kTokens = 256, kHeads = 4, kWidth = 16;
            const Sequence sequence{kTokens * rank.size(), kHeads, false};
            Device& device = rank.device();
            const auto random = [&](const std::string& name) {
                const Tensor values =
                    device.empty({kTokens, 1, kHeads * kWidth}, DType::f32);
                device.random_normal(
                    values, RandomStream(static_cast<std::uint64_t>(rank.index()), name),
                    0, 1);
                return values;
            };
            const Qkv own{random("queries"), random("keys"), random("values")};
            const Attended attended = adapters::forward(rank, own, sequence);
            adapters::backward(rank, own, attended, random("dy"), sequence);
        },
        "ring-attention");
}

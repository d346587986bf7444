// Shows your layer of experts on four virtual devices, as a timeline of both passes.

#include <memory>

#include <fmt/format.h>

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/course/show_run.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

using namespace lockstep;

constexpr std::int64_t kTokens = 256, kHidden = 64, kInner = 256;  // tokens of a rank
constexpr std::int64_t kOwnExperts = 2, kChosen = 2;

Tensor random(Rank& rank, const std::string& name) {
    const Tensor values = rank.device().empty({kTokens, kHidden}, DType::f64);
    rank.device().random_normal(
        values, RandomStream(static_cast<std::uint64_t>(rank.index()), name), 0, 1);
    return values;
}

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
            Linear gate({device, DType::f64, 1, "gate"}, kHidden,
                        kOwnExperts * rank.size(), false);
            std::vector<std::unique_ptr<Sequential>> experts;
            Layer layer{&gate, {}, kChosen};
            for (std::int64_t e = 0; e < kOwnExperts; ++e) {
                const ParameterInit init{
                    device, DType::f64, 1,
                    fmt::format("expert{}", rank.index() * kOwnExperts + e)};
                Sequential& expert =
                    *experts.emplace_back(std::make_unique<Sequential>());
                expert.add<Linear>(init.child("wide"), kHidden, kInner, false);
                expert.add<Tanh>(device);
                expert.add<Linear>(init.child("narrow"), kInner, kHidden, false);
                layer.experts.push_back(&expert);
            }
            adapters::pass(rank, layer, random(rank, "x"), random(rank, "dy"));
        },
        "experts");
}

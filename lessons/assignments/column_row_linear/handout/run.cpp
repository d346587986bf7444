// Shows your MLP, forward and backward, on three virtual devices, as a timeline.

#include "adapters.hpp"
#include "sim/cluster.hpp"
#include "src/comm/chunks.hpp"
#include "src/course/show_run.hpp"

using namespace lockstep;

int main() {
    sim::ClusterOptions options;
    options.ranks = 3;
    options.spec = load_cluster("classroom");
    options.trace = true;
    options.check = sim::CheckLevel::full;
    return show_run(
        *sim::make_cluster(options),
        [](Rank& rank) {
            constexpr std::int64_t kRows = 128, kHidden = 192, kInner = 800;
            const std::int64_t inner = chunk(kInner, rank.size(), rank.index()).count;
            const auto zeros = [&](const Shape& shape) {
                return rank.device().zeros(shape, DType::f64);
            };
            const Tensor x = zeros({kRows, kHidden}), dy = zeros({kRows, kHidden});
            const adapters::Tensors mlp{{"weight1", zeros({inner, kHidden})},
                                        {"bias1", zeros({inner})},
                                        {"weight2", zeros({kHidden, inner})},
                                        {"bias2", zeros({kHidden})}};
            adapters::Tensors forward;
            {
                const PhaseScope phase(rank.device(), Phase::forward);
                forward = adapters::mlp_forward(rank, x, mlp);
            }
            const PhaseScope phase(rank.device(), Phase::backward);
            adapters::mlp_backward(rank, x, mlp, forward, dy, /*wants_dx=*/true);
        },
        "mlp");
}

// F24: a gate is balanced by a bias, from the tokens of only some of the ranks that have
// tokens: the line "dp", not the plane of dp and ep (pytorch/torchtitan#4154).
//
// finds: F24
// check: full
// ranks: 4
// parties: 0 2 | 1 3
// says: differ

#include "src/comm/mesh.hpp"
#include "src/comm/rank.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/mixture_of_experts.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/placement.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Mesh mesh(rank.world(), {{"dp", 2}, {"ep", 2}});
    ExpertSizes sizes{4, 8};
    sizes.gate.chosen = 1;
    sizes.gate.biased = true;
    Sequential model;
    model.add<MixtureOfExperts>(ParameterInit{device, DType::f64, 7, "moe"},
                                MixtureOfExperts::Sizes{sizes, 6},
                                exchange_experts(mesh, {"ep"}), nullptr);
    declare_replicas_of(mesh, {"dp", "ep"}, model);
    AllReduceSync sync(model.parameters());
    Sgd optimizer(model.parameters());
    Communicator& counted = mesh["dp"];  // twin: Communicator& counted = rank.world();
    for (int step = 0; step < 3; ++step) {
        const Tensor x = device.empty({5, 6}, DType::f64);
        device.random_normal(x, RandomStream(step, "x"), 0, 1, rank.index() * 30);
        const MicroBatch batch{x, x, 1.0 / rank.size()};
        train_step(device, model, mean_squared_error, {&batch, 1}, sync, optimizer);
        balance_by_bias(device, counted, expert_layers(model), 0.1);  // line: balance
    }
}

// F29: dropout after a tensor-parallel layer. The masks are the same along tp, where they
// should be, but also along dp (tenstorrent/tt-metal#55947).
//
// finds: F29
// check: full
// ranks: 4
// parties: 0 2 | 0 2
// says: all replicas of dp

#include "src/comm/mesh.hpp"
#include "src/comm/rank.hpp"
#include "src/nn/dropout.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Mesh mesh(rank.world(), {{"dp", rank.size() / 2}, {"tp", 2}});
    TensorParallel tp(device, mesh["tp"]);
    Sequential model;
    model.add(make_mlp(ParameterInit{device, DType::f64, 7, "mlp"}, 8, 16, tensor_parallel({}, tp)));
    Dropout& dropout = model.add<Dropout>(device, 0.5, RandomStream(9, "dropout"));
    declare_replicas_of(mesh["dp"], model);
    AllReduceSync sync(model.parameters());
    Sgd optimizer(model.parameters());
    for (int step = 0; step < 3; ++step) {
        const Tensor x = device.empty({4, 8}, DType::f64);
        device.random_normal(x, RandomStream(step, "x"), 0, 1, mesh.coordinate("dp") * 32);
        const int part = 10 * step;  // twin: const int part = 10 * step + mesh.coordinate("dp");
        dropout.set_part(32 * part);
        const MicroBatch batch{x, x, 1.0 / mesh["dp"].size()};
        train_step(device, model, mean_squared_error, {&batch, 1}, sync, optimizer);
    }
}

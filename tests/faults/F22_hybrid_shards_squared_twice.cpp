// F22: hybrid sharding. Each shard is on several ranks along "replicate", but its squares
// are added up over all ranks, so they count more than once in the norm
// (ByteDance-Seed/VeOmni#184).
//
// finds: F22
// check: full
// ranks: 4, 16
// parties: 0
// says: counts

#include "src/comm/mesh.hpp"
#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const int half = rank.size() == 4 ? 2 : 4;
    Mesh mesh(rank.world(), {{"replicate", half}, {"shard", half}});
    Sequential model;
    model.add<Linear>(ParameterInit{device, DType::f64, 7, "layer"}, 6, 8);
    for (const char* axis : {"replicate", "shard"}) declare_replicas_of(mesh[axis], model);
    FullySharded sync(device, mesh["shard"], model);
    Sgd optimizer(sync.shards());
    for (int step = 0; step < 3; ++step) {
        sync.begin();
        Saved saved;
        const Tensor x = device.empty({2, 6}, DType::f64), zeros = device.zeros({2, 8}, DType::f64);
        device.random_normal(x, RandomStream(step, "x"), 0, 1, rank.index() * 12);
        const Tensor y = model.forward(x, saved);
        model.backward(mean_squared_error(device, y, zeros, 1.0 / rank.size()).gradient, saved);
        sync.finish();
        const Tensor squares = device.zeros({1}, DType::f64), factor = device.empty({1}, DType::f64);
        for (Parameter* shard : sync.shards()) device.sum_of_squares(squares, shard->gradient);
        rank.world().all_reduce(squares).wait();  // twin: mesh["shard"].all_reduce(squares).wait();
        device.clip_factor(factor, squares, 0.01);  // line: clip
        for (Parameter* shard : sync.shards()) device.scale(shard->gradient, factor);
        sync.update(optimizer);
    }
}

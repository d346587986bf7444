// F23: an adapter under sequence parallelism. Its second factor is whole on each rank and
// starts as zeros. Each rank has seen only its own tokens, and nothing sums the gradients
// (modelscope/mcore-bridge#173).
//
// finds: F23
// check: full
// ranks: 2, 4
// parties: 0 | 1
// says: hold the same adapter.b

#include "src/comm/rank.hpp"
#include "src/nn/parameter.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const ParameterInit init{device, DType::f64, 7, "adapter"};
    Parameter b(init, "b", Shape{4, 2});
    device.fill(b.value, 0);
    const std::int64_t tokens = 2 * rank.size();
    for (int step = 0; step < 3; ++step) {
        const Tensor partial = device.empty({tokens, 2}, DType::f64);  // x a^T, own columns
        device.random_normal(partial, RandomStream(step, "x"), 0, 1, rank.index() * 100);
        const Tensor z = device.empty({2, 2}, DType::f64), dy = device.empty({2, 4}, DType::f64);
        rank.world().reduce_scatter(z, partial).wait();
        device.random_normal(dy, RandomStream(step, "dy"), 0, 1, rank.index() * 8);
        const Tensor db = device.matmul(dy, z, {.transpose_a = true});
        // twin: rank.world().all_reduce(db).wait();
        device.sgd(b.value, db, Tensor(), {});  // line: step
    }
}

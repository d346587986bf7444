// F23: a pipeline with tied embeddings. The first stage embeds and the last stage
// projects with the same weights. The two gradients are not added up.
//
// finds: F23
// check: full
// ranks: 2, 4
// parties: 0 | 1

#include "src/comm/rank.hpp"
#include "src/nn/parameter.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const bool first = rank.index() == 0;
    const bool last = rank.index() == 1;
    const auto pipe = rank.world().split(first || last ? 0 : Communicator::kNoColor, 0, "pp");
    if (!pipe) return;  // two stages; the other ranks have none
    Parameter table({device, DType::f32, 7, ""}, "embedding.weight", {8, 4});
    device.random_normal(table.value, {7, table.name()}, 0, 0.5);
    const Tensor ids = device.zeros({3}, DType::i32);
    for (int step = 0; step < 2; ++step) {
        table.zero_gradient();
        const Tensor targets = ids;
        if (first) {
            const Tensor x = device.embedding(table.value, ids);
            pipe->send(x, 1).wait();
            const Tensor dx = device.empty({3, 4}, DType::f32);
            pipe->recv(dx, 1).wait();
            device.embedding_backward(table.gradient, ids, dx);
        } else {
            const Tensor x = device.empty({3, 4}, DType::f32);
            pipe->recv(x, 0).wait();
            const Tensor logits = device.matmul(x, table.value, {.transpose_b = true});
            const Tensor d = device.cross_entropy_backward(logits, targets, 1.0 / 3);
            device.matmul_into(table.gradient, d, x, {.transpose_a = true, .accumulate = true});
            pipe->send(device.matmul(d, table.value), 0).wait();
        }
        // twin: pipe->all_reduce(table.gradient).wait();
        device.sgd(table.value, table.gradient, Tensor(), {.learning_rate = 0.1});  // line: step
    }
}

// F25: an asynchronous pipeline (PipeDream) steps after every backward, while a second
// micro-batch is in flight. It does not stash the weights that the forward used.
//
// finds: F25
// check: full
// ranks: 2, 16
// parties: 0 | 0 | 0

#include "src/comm/rank.hpp"

namespace {

struct Stage {
    Device& device;
    Tensor weight;
    Tensor inputs[4];
    Tensor used[4];

    Tensor forward(int i, const Tensor& x) {
        const PhaseScope phase(device, Phase::forward, i);
        inputs[i] = x;
        used[i] = weight;
        return device.matmul(x, weight);  // line: forward
    }

    Tensor backward(int i, const Tensor& dy) {
        const PhaseScope phase(device, Phase::backward, i);
        const Tensor dx = device.matmul(dy, used[i], {.transpose_b = true});  // line: backward
        const Tensor gradient = device.matmul(inputs[i], dy, {.transpose_a = true});
        const Tensor next = weight;  // twin: const Tensor next = device.empty({4, 4}, DType::f32); device.copy(next, weight);
        device.sgd(next, gradient, Tensor(), {.learning_rate = 0.01});  // line: step
        weight = next;
        return dx;
    }
};

}  // namespace

void program(Rank& rank) {
    Device& device = rank.device();
    Communicator& pipe = rank.world();
    const bool first = rank.index() == 0;
    if (rank.index() > 1) return;  // two stages; the other ranks have none
    Stage stage{device, device.empty({4, 4}, DType::f32), {}, {}};
    device.random_normal(stage.weight, {1, first ? "stage.0" : "stage.1"}, 0, 0.5);
    const auto input = [&](int i) {
        const Tensor x = device.empty({2, 4}, DType::f32);
        if (first) device.random_normal(x, {2, "data"}, 0, 1, i * x.elements());
        return x;
    };
    // 1F1B with two micro-batches in flight on the first stage.
    if (first) pipe.send(stage.forward(0, input(0)), 1).wait();
    for (int i = 0; i < 4; ++i) {
        if (first) {
            const Tensor y = i < 3 ? stage.forward(i + 1, input(i + 1)) : Tensor();
            const Tensor dy = device.empty({2, 4}, DType::f32);
            Group both = pipe.group();
            if (y) both.send(y, 1);
            both.recv(dy, 1).start().wait();
            stage.backward(i, dy);
        } else {
            const Tensor x = input(i);
            pipe.recv(x, 0).wait();
            pipe.send(stage.backward(i, stage.forward(i, x)), 0).wait();
        }
    }
}

// A pipeline of layers y = tanh(x W), one for each stage: one forward, one backward.

#include <algorithm>

#include "programs.hpp"
#include "stage.hpp"

using namespace lockstep;

void pipeline_gradients(Rank& rank, const Tensor& weight, const Tensor& gradient,
                        int micro_batches, std::int64_t rows,
                        const std::vector<Tensor>& inputs,
                        const std::vector<Tensor>& targets) {
    Device& device = rank.device();
    const int stage = rank.index(), last = rank.size() - 1;
    const Shape shape{rows, weight.shape().columns()};
    Stage layer(device, weight, gradient);
    auto input = inputs.begin(), target = targets.begin();

    // These functions return the stage's own tensor or a received one, and may send one.
    const auto next_x = [&](const Tensor& dx = {}) {
        if (stage == 0) return *input++;
        const Tensor x = device.empty(shape, weight.dtype());
        Group group = rank.world().group();
        if (dx) group.send(dx, stage - 1);
        group.recv(x, stage - 1).start().wait();
        return x;
    };
    const auto next_dy = [&](const Tensor& y = {}) {
        if (stage == last) return device.squared_error_backward(y, *target++, 1);
        const Tensor dy = device.empty(shape, weight.dtype());
        Group group = rank.world().group();
        if (y) group.send(y, stage + 1);
        group.recv(dy, stage + 1).start().wait();
        return dy;
    };

    // This many forwards run first, with no backward; as many backwards run at the end.
    const int ahead = std::min(last, micro_batches) - stage;
    for (int i = 0; i < ahead; ++i)
        rank.world().send(layer.forward(next_x()), stage + 1).wait();
    const int steady = micro_batches - ahead;
    Tensor x;
    if (steady > 0) x = next_x();
    for (int i = 0; i < steady; ++i) {
        const Tensor dx = layer.backward(next_dy(layer.forward(x)));
        if (i + 1 < steady)
            x = next_x(dx);
        else if (stage > 0)
            rank.world().send(dx, stage - 1).wait();
    }
    for (int i = 0; i < ahead; ++i) {
        const Tensor dx = layer.backward(next_dy());
        if (stage > 0) rank.world().send(dx, stage - 1).wait();
    }
}

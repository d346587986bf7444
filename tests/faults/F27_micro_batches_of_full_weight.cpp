// F27: gradient accumulation under data parallelism. Every micro-batch has the weight of
// the whole batch. Only a comparison with one device shows this: a sum may be intended.
//
// finds: F27
// check: full
// ranks: 2, 4
// parties: all | all

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"

constexpr int kMicroBatches = 3;
constexpr int kRows = 24;

LossResult train(Device& device, Linear& model, int first, int rows, double weight) {
    const Tensor x = device.empty({rows, 6}, DType::f64);
    const Tensor y = device.empty({rows, 5}, DType::f64);
    device.random_normal(x, RandomStream(1, "x"), 0, 1, first * 6);
    device.random_normal(y, RandomStream(1, "y"), 0, 1, first * 5);
    Saved saved;
    const Tensor prediction = model.forward(x, saved);
    const LossResult loss = mean_squared_error(device, prediction, y, weight);  // line: loss
    model.backward(loss.gradient, saved);
    return loss;
}

void reference(Rank& rank) {
    Linear model({rank.device(), DType::f64, 7, "layer"}, 6, 5);
    train(rank.device(), model, 0, kRows, 1);
    rank.keep("gradient", model.parameters()[0]->gradient);
}

void program(Rank& rank) {
    Linear model({rank.device(), DType::f64, 7, "layer"}, 6, 5);
    const int rows = kRows / rank.size() / kMicroBatches;
    const int parts = rank.size();  // twin: const int parts = rank.size() * kMicroBatches;
    for (int m = 0; m < kMicroBatches; ++m)
        train(rank.device(), model, (kMicroBatches * rank.index() + m) * rows, rows,
              1.0 / parts);
    for (const Parameter* parameter : model.parameters())
        rank.world().all_reduce(parameter->gradient).wait();
    rank.keep("gradient", model.parameters()[0]->gradient);  // line: keep
}

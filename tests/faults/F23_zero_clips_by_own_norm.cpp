// F23: ZeRO-1 by hand; each rank clips its shard by the norm of that shard alone, so that
// every part of the gradient is scaled by another factor.
//
// finds: F23
// check: full
// ranks: 2, 4
// parties: 0

#include "src/nn/optimizer.hpp"
#include "tests/faults/zero_by_hand.hpp"

class Zero : public ZeroByHand {
  public:
    using ZeroByHand::ZeroByHand;
    void finish() override {
        start_rest();
        for (Work& sum : sums)
            sum.wait();
        sums.clear();
    }
    void update(Optimizer& optimizer) override {
        Device& device = *values.front().device();
        const Tensor squares = device.zeros({1}, DType::f64);
        for (const Parameter* shard : updated())
            device.sum_of_squares(squares, shard->gradient);
        // twin: world.all_reduce(squares).wait();
        const Tensor factor = device.empty({1}, DType::f64);
        device.clip_factor(factor, squares, 0.01);  // line: clip
        for (const Parameter* shard : updated())
            device.scale(shard->gradient, factor);
        optimizer.step();
        for (const Tensor& flat : values)
            world.all_gather(flat, own(flat)).wait();
    }
};

void program(Rank& rank) {
    const auto model = two_layers(rank.device());
    Zero zero(rank, *model);
    Sgd optimizer(zero.updated());
    for (int step = 0; step < 2; ++step) {
        const MicroBatch batch = rows_of(rank, step);
        train_step(rank.device(), *model, mean_squared_error, {&batch, 1}, zero, optimizer);
    }
}

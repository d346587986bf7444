// F23: ZeRO-1 by hand. Each rank clips its shard by the norm of only this shard, so each
// part of the gradient gets another factor.
//
// finds: F23
// check: full
// ranks: 2, 4
// parties: 0 | 1

#include "tests/faults/zero_by_hand.hpp"

class Zero : public ZeroByHand {
  public:
    using ZeroByHand::ZeroByHand;
    void update(Optimizer& optimizer) override {
        Device& device = *values.front().device();
        const Tensor squares = device.zeros({1}, DType::f64);
        for (const Parameter* shard : shards())
            device.sum_of_squares(squares, shard->gradient);
        // twin: world.all_reduce(squares).wait();
        const Tensor factor = device.empty({1}, DType::f64);
        device.clip_factor(factor, squares, 0.01);  // line: clip
        for (const Parameter* shard : shards())
            device.scale(shard->gradient, factor);
        ZeroByHand::update(optimizer);
    }
};

void program(Rank& rank) {
    const auto model = two_layers(rank.device());
    Zero zero(rank, *model);
    Sgd optimizer(zero.shards());
    train_two_steps(rank, *model, zero, optimizer);
}

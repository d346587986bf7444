// F23: ZeRO-1 by hand over buckets; the optimizer is made of the whole parameters, as in
// data parallelism. Each rank has the states of all of them, and steps with gradients of
// which only its own part has been added up.
//
// finds: F23
// check: full
// ranks: 2, 4
// parties: 0 | 1

#include "src/nn/optimizer.hpp"
#include "src/parallel/placement.hpp"
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
        optimizer.step();
        for (const Tensor& flat : values)
            world.all_gather(flat, own(flat)).wait();
    }
};

void program(Rank& rank) {
    const auto model = two_layers(rank.device());
    declare_replicas_of(rank.world(), *model);
    Zero zero(rank, *model);
    AdamW optimizer(model->parameters());  // twin: AdamW optimizer(zero.updated());
    for (int step = 0; step < 2; ++step) {
        const MicroBatch batch = rows_of(rank, step);
        train_step(rank.device(), *model, mean_squared_error, {&batch, 1}, zero, optimizer);
    }
}

// F25: ZeRO-1 by hand over buckets; the loop that gathers new values leaves one bucket
// out, so that each rank goes on with its own part of it new and the others' old.
//
// finds: F25
// check: full
// ranks: 2, 4
// parties: 0 | 0

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
        optimizer.step();
        std::size_t bucket = 1;  // twin: std::size_t bucket = 0;
        for (; bucket < values.size(); ++bucket)
            world.all_gather(values[bucket], own(values[bucket])).wait();
    }
};

void program(Rank& rank) {
    const auto model = two_layers(rank.device());
    Zero zero(rank, *model);
    AdamW optimizer(zero.updated());
    for (int step = 0; step < 2; ++step) {
        const MicroBatch batch = rows_of(rank, step);
        train_step(rank.device(), *model, mean_squared_error, {&batch, 1}, zero, optimizer);
    }
}

// F25: ZeRO-1 by hand over buckets. The loop that gathers new values leaves out one
// bucket. Each rank has new values in its part of the bucket, and old ones in the rest.
//
// finds: F25
// check: full
// ranks: 2, 4
// parties: 0 | 0

#include "tests/faults/zero_by_hand.hpp"

class Zero : public ZeroByHand {
  public:
    using ZeroByHand::ZeroByHand;
    void update(Optimizer& optimizer) override {
        optimizer.step();
        gather_from(1);  // twin: gather_from(0);
    }
};

void program(Rank& rank) {
    const auto model = two_layers(rank.device());
    Zero zero(rank, *model);
    AdamW optimizer(zero.shards());
    train_two_steps(rank, *model, zero, optimizer);
}

// F16: ZeRO-1 by hand over buckets. finish() waits for all reductions except the last
// one, which has only just begun.
//
// finds: F16
// check: full
// ranks: 2, 4
// parties: 0 | 0

#include "tests/faults/zero_by_hand.hpp"

class Zero : public ZeroByHand {
  public:
    using ZeroByHand::ZeroByHand;
    void finish() override {
        start_rest();
        wait_for(sums.size() - 1);  // twin: wait_for(sums.size());
    }
};

void program(Rank& rank) {
    const auto model = two_layers(rank.device());
    Zero zero(rank, *model);
    AdamW optimizer(zero.shards());
    train_two_steps(rank, *model, zero, optimizer);
}

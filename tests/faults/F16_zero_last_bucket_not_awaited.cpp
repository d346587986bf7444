// F16: ZeRO-1 by hand over buckets; finish() waits for all reductions but the last, which
// has only just begun.
//
// finds: F16
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
        const std::size_t awaited = sums.size() - 1;  // twin: const std::size_t awaited = sums.size();
        for (std::size_t i = 0; i < awaited; ++i)
            sums[i].wait();
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
    Zero zero(rank, *model);
    AdamW optimizer(zero.updated());
    for (int step = 0; step < 2; ++step) {
        const MicroBatch batch = rows_of(rank, step);
        train_step(rank.device(), *model, mean_squared_error, {&batch, 1}, zero, optimizer);
    }
}

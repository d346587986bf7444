// F16: ZeRO-1 by hand over buckets; the gathers begin when all shards but the last have
// had their step, and that one steps values which are on their way.
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
        for (Work& sum : sums)
            sum.wait();
        sums.clear();
    }
    void update(Optimizer& optimizer) override {
        const bool early = true;  // twin: const bool early = false;
        for (std::size_t i = 0; i + 1 < shards.size(); ++i)
            optimizer.step(*shards[i]);
        if (early) gather();
        optimizer.step(*shards.back());
        if (!early) gather();
        for (Work& work : gathers)
            work.wait();
        gathers.clear();
    }

  private:
    void gather() {
        for (const Tensor& flat : values)
            gathers.push_back(world.all_gather(flat, own(flat)));  // line: gather
    }
    std::vector<Work> gathers;
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

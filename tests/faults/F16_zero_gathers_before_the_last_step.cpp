// F16: ZeRO-1 by hand over buckets. The gathers begin when all shards except the last
// have been updated. So the last update changes values that are being gathered.
//
// finds: F16
// check: full
// ranks: 2, 4
// parties: 0 | 0

#include "tests/faults/zero_by_hand.hpp"

class Zero : public ZeroByHand {
  public:
    using ZeroByHand::ZeroByHand;
    void update(Optimizer& optimizer) override {
        const bool early = true;  // twin: const bool early = false;
        for (const Parameter* shard : shards()) {
            if (early && shard == shards().back()) gather();
            optimizer.step(*shard);
        }
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
    AdamW optimizer(zero.shards());
    train_two_steps(rank, *model, zero, optimizer);
}

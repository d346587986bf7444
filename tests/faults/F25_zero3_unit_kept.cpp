// F25: ZeRO-3 by hand over units. One unit is opened for forward but never closed, so the
// unit keeps old whole values after its shards are updated.
//
// finds: F25
// check: full
// ranks: 2, 4
// parties: 0 | 0 | 0

#include "src/comm/rank.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/sharded_unit.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    Linear up({device, DType::f64, 7, "up"}, 6, 8);
    Linear down({device, DType::f64, 7, "down"}, 8, 4);
    ShardedUnit first(device, rank.world(), up.parameters(), {});
    ShardedUnit second(device, rank.world(), down.parameters(), {});
    std::vector<Parameter*> shards = first.shards();
    for (Parameter* shard : second.shards())
        shards.push_back(shard);
    AdamW optimizer(shards);
    for (int step = 0; step < 2; ++step) {
        const Tensor x = device.empty({4, 6}, DType::f64);
        const Tensor y = device.zeros({4, 4}, DType::f64);
        device.random_normal(x, RandomStream(3 + step, "x"), 0, 1,
                             rank.index() * x.elements());
        const auto backward = [&](ShardedUnit& unit, Module& layer, const Tensor& dy,
                                  Saved& saved) {
            unit.make_gradients();
            const Tensor dx = layer.backward(dy, saved);
            unit.reduce(false);
            unit.close(false);
            return dx;
        };
        Saved saved;
        Saved saved_of_second;
        LossResult loss;
        {
            const PhaseScope phase(device, Phase::forward, 0);
            first.open();
            if (step == 0) first.open();  // twin:
            const Tensor hidden = up.forward(x, saved);
            second.open();
            loss = mean_squared_error(device, down.forward(hidden, saved_of_second), y,
                                      1.0 / rank.size());
        }
        {
            const PhaseScope phase(device, Phase::backward, 0);
            const Tensor dh = backward(second, down, loss.gradient, saved_of_second);
            backward(first, up, dh, saved);
        }
        first.sum().finish();
        second.sum().finish();
        optimizer.step();
    }
}

// F23: ZeRO-1 by hand over buckets. As in data parallelism, the optimizer has the whole
// parameters. So each rank has all states and steps with whole gradients, but only its
// own part of the gradients has been summed.
//
// finds: F23
// check: full
// ranks: 2, 4
// parties: 0 | 1

#include "src/parallel/placement.hpp"
#include "tests/faults/zero_by_hand.hpp"

void program(Rank& rank) {
    const auto model = two_layers(rank.device());
    declare_replicas_of(rank.world(), *model);
    ZeroByHand zero(rank, *model);
    AdamW optimizer(model->parameters());  // twin: AdamW optimizer(zero.shards());
    train_two_steps(rank, *model, zero, optimizer);
}

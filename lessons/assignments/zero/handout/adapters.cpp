#include "adapters.hpp"

#include "zero.hpp"

using namespace lockstep;

void adapters::stage_1(Rank& rank, const Layers& layers,
                       const MicroBatches& micro_batches, const Training& training) {
    ::stage_1(rank, layers, micro_batches, training);
}

void adapters::stage_2(Rank& rank, const Layers& layers,
                       const MicroBatches& micro_batches, const Training& training) {
    ::stage_2(rank, layers, micro_batches, training);
}

void adapters::stage_3(Rank& rank, const Layers& layers,
                       const MicroBatches& micro_batches, const Training& training) {
    ::stage_3(rank, layers, micro_batches, training);
}

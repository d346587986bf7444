// F24: context parallelism by hand on a mesh. A rank chooses its stretch of each sequence
// by its number modulo two, as if cp were the last axis. But the last axis is tp. So
// ranks along tp read different tokens, and ranks along cp read the same tokens.
//
// finds: F24
// check: full
// ranks: 16
// parties: 0 | 1
// says: the ranks of tp must read the same ids for transformer.wte.weight, but do not: rank 1 reads 4

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    GptByHand gpt(rank);
    const int place = rank.index() % 2;  // twin: const int place = gpt.mesh.coordinate("cp");
    const TokenDeal stretch{TokenOrder::contiguous, 2, place};
    gpt.pipeline.reduce_over(gpt.mesh, {"dp", "cp"});
    for (int step = 0; step < kSteps; ++step) {
        std::vector<MicroBatch> batches;
        for (int i = 0; i < kMicroBatches; ++i) {
            const Sequence text(number_of(step, gpt.mesh.coordinate("dp"), i));
            batches.push_back(gpt.micro_batch(text, stretch));  // line: read
        }
        gpt.backward(batches);
        gpt.optimizer.step();
    }
}

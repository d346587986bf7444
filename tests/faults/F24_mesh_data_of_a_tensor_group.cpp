// F24: a GPT on a mesh, after a restart. Rank 5's loader begins one sequence later than
// rank 4's loader, although the two ranks share each layer.
//
// finds: F24
// check: full
// ranks: 16
// parties: 4 | 5
// says: the ranks of tp must read the same ids for transformer.wte.weight, but do not: rank 5 reads 12

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    GptByHand gpt(rank);
    gpt.pipeline.reduce_over(gpt.mesh, {"dp", "cp"});
    const int ahead = rank.index() == 5 ? 1 : 0;  // twin: const int ahead = 0;
    for (int step = 0; step < kSteps; ++step) {
        std::vector<MicroBatch> batches;
        for (int i = 0; i < kMicroBatches; ++i) {
            const Sequence text(number_of(step, gpt.mesh.coordinate("dp"), i) + ahead);
            batches.push_back(gpt.micro_batch(text, gpt.kit.tokens));  // line: read
        }
        gpt.backward(batches);
        gpt.optimizer.step();
    }
}

// F24: a GPT on a mesh. Each rank chooses its sequences by its number in the world, as in
// pure data parallelism. But ranks along pp, cp and tp are one replica. So the last stage
// compares one text's logits with another text's words.
//
// finds: F24
// check: full
// ranks: 16
// parties: 0 | 8
// says: the ranks of pp must read the same ids of a micro-batch, but do not: rank 8 reads 7

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    const MeshPlan plan = plan_on(kAxes);
    GptOnMesh gpt(rank, plan, DType::f32, 1);
    Sgd optimizer(gpt.sync().shards());
    for (int step = 0; step < kSteps; ++step) {
        std::vector<MicroBatch> batches;
        for (int i = 0; i < kMicroBatches; ++i) {
            const int reader = rank.index();  // twin: const int reader = gpt.replica();
            const Sequence text(number_of(step, reader, i));
            batches.push_back(gpt.micro_batch(text.ids, text.next));  // line: read
        }
        gpt.step(batches, optimizer, 0.01);
    }
}

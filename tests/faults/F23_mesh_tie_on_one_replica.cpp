// F23: a GPT on a mesh. Its head is tied to its table, over two stages. Only the replica
// that writes checkpoints makes the tie.
//
// finds: F23
// check: full
// ranks: 16
// parties: 8 10 | 12 14
// says: the gradient on ranks 12, 14 lacks the terms of ranks 0, 2, 4, 6, which all_reduce(sum, 56 x f32) of tied

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    GptByHand gpt(rank, /*tied=*/true);
    gpt.pipeline.reduce_over(gpt.mesh, {"dp", "cp"});
    std::unique_ptr<Communicator> tied;
    const bool saves = gpt.mesh.coordinate("dp") == 0;  // twin: const bool saves = true;
    if (saves) tied = tie_gpt(gpt.pipeline, gpt.stage, gpt.plan.schedule(), gpt.mesh["pp"]);
    for (int step = 0; step < kSteps; ++step) {
        gpt.backward(gpt.batches(step));
        gpt.optimizer.step();  // line: step
    }
}

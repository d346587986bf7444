// F23: a GPT on a mesh. Its head and its table are tied by hand. Each line of stages has
// a group of its two ends, but the loop over the lines leaves out the last line.
//
// finds: F23
// check: full
// ranks: 16
// parties: 1 | 15
// says: the gradient on rank 15 lacks the terms of ranks 1, 3, 5, 7, which all_reduce(sum, 56 x f32) of ends

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    GptByHand gpt(rank, /*tied=*/true);
    const int lines = rank.size() / 2;
    std::unique_ptr<Communicator> ends;
    for (int first = 0; first < lines - 1; ++first) {  // twin: for (int first = 0; first < lines; ++first) {
        auto both = rank.world().subgroup({first, first + lines}, "ends");
        if (both) ends = std::move(both);
    }
    for (int step = 0; step < kSteps; ++step) {
        gpt.backward(gpt.batches(step));
        for (const Parameter* parameter : gpt.parameters())
            gpt.mesh.plane({"dp", "cp"}).all_reduce(parameter->gradient).wait();
        if (ends) ends->all_reduce(gpt.stage.tied->gradient).wait();  // line: tie
        gpt.optimizer.step();  // line: step
    }
}

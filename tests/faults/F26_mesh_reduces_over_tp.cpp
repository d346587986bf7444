// F26: a GPT on a mesh. By hand, gradients are summed along cp and then along tp instead
// of dp. Ranks along tp have different parts of each weight, and these parts are added
// up. The gradients of replicas along dp are never summed.
//
// finds: F26
// check: cheap
// ranks: 16
// parties: 8 | 9
// says: adds up different parts of transformer.h.1.attn.c_attn.weight: rank 9 brings rows 4–7, 12–15, 20–23

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    GptByHand gpt(rank);
    for (int step = 0; step < kSteps; ++step) {
        gpt.backward(gpt.batches(step));
        for (const Parameter* parameter : gpt.parameters()) {
            gpt.mesh["cp"].all_reduce(parameter->gradient).wait();
            gpt.mesh["tp"].all_reduce(parameter->gradient).wait();  // line: sum  // twin: gpt.mesh["dp"].all_reduce(parameter->gradient).wait();
        }
        gpt.optimizer.step();
    }
}

// F23: a GPT on a mesh. It is clipped by the norm over one plane of the mesh, so each
// pipeline stage clips by the norm of its own layers.
//
// finds: F23
// check: full
// ranks: 16
// parties: 0 | 8
// says: the two ranks hold different parts of the model along pp, but their squares are not added up over it

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    const MeshPlan plan = plan_on(kAxes);
    GptOnMesh gpt(rank, plan, DType::f32, 1);
    Sgd optimizer(gpt.sync().shards());
    for (int step = 0; step < kSteps; ++step) {
        gpt.gradients(batches_of(gpt, step));
        Communicator& all = gpt.mesh().plane({"dp", "cp", "tp"});  // twin: Communicator& all = rank.world();
        clip_gradients(rank.device(), all, gpt.sync().shards(), 0.01);  // line: clip
        gpt.update(optimizer);
    }
}

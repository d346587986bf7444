// F13: a GPT on a mesh. Before the second step one replica writes a checkpoint and waits
// in a barrier. Its plane also contains the other replica, which continues without it.
//
// finds: F13
// check: cheap
// ranks: 16
// parties: 0 1 2 3 | 4 6
// says: no rank can continue: ranks 0–3 in barrier() #0 of dp x cp x tp

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    const MeshPlan plan = plan_on(kAxes);
    GptOnMesh gpt(rank, plan, DType::f32, 1);
    Mesh& mesh = gpt.mesh();
    Communicator& stage = mesh.plane({"dp", "cp", "tp"});
    Sgd optimizer(gpt.sync().shards());
    for (int step = 0; step < kSteps; ++step) {
        const bool saves = step == 1 && mesh.coordinate("dp") == 0;  // twin: const bool saves = step == 1;
        if (saves) stage.barrier().wait();  // line: barrier
        gpt.step(batches_of(gpt, step), optimizer, 0.01);
    }
}

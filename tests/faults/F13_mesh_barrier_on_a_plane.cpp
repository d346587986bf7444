// F13: a GPT on a mesh. Before the second step only the ranks of the first stage wait for
// one another. They make their plane at that point, but all ranks must make it.
//
// finds: F13
// check: cheap
// ranks: 16
// parties: 0 1 2 3 4 5 6 7 | 8
// says: no rank can continue: ranks 0–7 in split(dp x cp x tp, of ranks 0–7)

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    const MeshPlan plan = plan_on(kAxes);
    GptOnMesh gpt(rank, plan, DType::f32, 1);
    Mesh& mesh = gpt.mesh();
    // twin: mesh.plane({"dp", "cp", "tp"});
    Sgd optimizer(gpt.sync().shards());
    for (int step = 0; step < kSteps; ++step) {
        if (step == 1 && mesh.coordinate("pp") == 0)
            mesh.plane({"dp", "cp", "tp"}).barrier().wait();  // line: barrier
        gpt.step(batches_of(gpt, step), optimizer, 0.01);
    }
}

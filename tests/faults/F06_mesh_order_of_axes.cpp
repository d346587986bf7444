// F06: a GPT on a mesh of four axes. The node of rank 5 has an older settings file, with
// cp before dp. Rank 5's groups have the members that it expects, but its cp line is a dp
// line for the other ranks.
//
// finds: F06
// check: cheap
// ranks: 16
// parties: 5 | rest
// says: the axes are in another order: cp instead of dp

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    std::vector<Mesh::Axis> axes{{"pp", 2}, {"dp", 2}, {"cp", 2}, {"tp", 2}};
    if (rank.index() == 5) std::swap(axes[1], axes[2]);  // twin:
    const MeshPlan plan = plan_on(axes);
    GptOnMesh gpt(rank, plan, DType::f32, 1);  // line: mesh
    Sgd optimizer(gpt.sync().shards());
    for (int step = 0; step < kSteps; ++step)
        gpt.step(batches_of(gpt, step), optimizer, 0.01);
}

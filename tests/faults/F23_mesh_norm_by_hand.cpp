// F23: a GPT on a mesh, clipped by hand. Squares are added up along pp, where ranks have
// different layers, but not along tp, where ranks have different heads and columns. So a
// tensor group's ranks scale their replicated norms and positions by different factors.
//
// finds: F23
// check: full
// ranks: 16
// parties: 8 | 9
// says: the two ranks hold different parts of the model along tp, but their squares are not added up over it

#include "tests/faults/gpt_on_16.hpp"

void program(Rank& rank) {
    Device& device = rank.device();
    const MeshPlan plan = plan_on(kAxes);
    GptOnMesh gpt(rank, plan, DType::f32, 1);
    Sgd optimizer(gpt.parameters());
    const bool first = gpt.mesh().coordinate("tp") == 0;
    for (int step = 0; step < kSteps; ++step) {
        gpt.gradients(batches_of(gpt, step));
        const Tensor squares = device.zeros({1}, DType::f32);
        for (const Parameter* parameter : gpt.parameters())
            if (first || !holds_all(parameter->part()))  // a replicated parameter counts once
                device.sum_of_squares(squares, parameter->gradient);
        gpt.mesh()["pp"].all_reduce(squares).wait();
        // twin: gpt.mesh()["tp"].all_reduce(squares).wait();
        const Tensor factor = device.empty({1}, DType::f32);
        device.clip_factor(factor, squares, 0.01);  // line: clip
        for (const Parameter* parameter : gpt.parameters())
            device.scale(parameter->gradient, factor);
        gpt.update(optimizer);
    }
}

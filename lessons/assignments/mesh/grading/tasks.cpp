#include <fmt/format.h>

#include "lessons/assignments/mesh/grading/given.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

namespace given = lessons::mesh;

void train(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto asked = given::from_numbers<given::GivenJob>(in.numbers);
    const Trained trained = adapters::train(rank, given::job_of(asked), asked.axes);
    const auto leave = [&out](const char* name, const std::vector<Tensor>& of_steps) {
        for (std::size_t step = 0; step < of_steps.size(); ++step)
            out.tensors[fmt::format("{} {}", name, step)] = of_steps[step];
    };
    leave("loss", trained.losses);
    leave("squares", trained.squares);
    if (asked.dtype != DType::f64) return;  // a large job, without numbers
    for (const auto& [name, weight] : trained.weights)
        out.tensors["weight " + name] = weight;
}

void choose(Rank& /*rank*/, const TaskInputs& in, TaskOutputs& out) {
    const Axes axes = adapters::choose(given::from_numbers<Setting>(in.numbers));
    out.texts["axes"] = MeshShape(axes).text();
}

}  // namespace

Tasks tasks() {
    // Each kind of setting has its own task: if one runs out of time, the others run.
    return {{"train", train},
            {"train wide", train},
            {"train nodes", train},
            {"train context", train},
            {"choose", choose}};
}

}  // namespace lockstep

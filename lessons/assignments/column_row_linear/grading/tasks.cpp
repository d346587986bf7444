#include "adapters.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

bool wants_dx(const TaskInputs& in) {
    return in.number("wants_dx") != 0;
}

void column_forward(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    out.tensors["y"] = adapters::column_forward(rank, in.tensor("x"), in.tensor("weight"),
                                                in.tensor("bias"));
}

void column_backward(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    out.tensors = adapters::column_backward(rank, in.tensor("x"), in.tensor("weight"),
                                            in.tensor("dy"), wants_dx(in));
}

void row_forward(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    out.tensors["y"] = adapters::row_forward(rank, in.tensor("x"), in.tensor("weight"),
                                             in.tensor("bias"));
}

void row_backward(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    out.tensors = adapters::row_backward(rank, in.tensor("x"), in.tensor("weight"),
                                         in.tensor("dy"));
}

adapters::Tensors parts_of_mlp(const TaskInputs& in) {
    adapters::Tensors parts;
    for (const char* name : {"weight1", "bias1", "weight2", "bias2"})
        parts[name] = in.tensor(name);
    return parts;
}

void mlp_forward(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    out.tensors["y"] =
        adapters::mlp_forward(rank, in.tensor("x"), parts_of_mlp(in)).at("y");
}

/// Runs forward and backward.
void mlp_backward(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const adapters::Tensors parts = parts_of_mlp(in);
    const adapters::Tensors forward = adapters::mlp_forward(rank, in.tensor("x"), parts);
    out.tensors = adapters::mlp_backward(rank, in.tensor("x"), parts, forward,
                                         in.tensor("dy"), wants_dx(in));
    out.tensors["y"] = forward.at("y");
}

/// Also adds the task's inputs, as they are after the task, to the task's outputs.
Task and_given(Task task) {
    return [task = std::move(task)](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        task(rank, in, out);
        for (const auto& [name, tensor] : in.tensors)
            out.tensors[name] = tensor;
    };
}

}  // namespace

Tasks tasks() {
    return {{"column_forward", and_given(column_forward)},
            {"column_backward", and_given(column_backward)},
            {"row_forward", and_given(row_forward)},
            {"row_backward", and_given(row_backward)},
            {"mlp_forward", and_given(mlp_forward)},
            {"mlp_backward", and_given(mlp_backward)}};
}

}  // namespace lockstep

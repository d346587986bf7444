#include "adapters.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

std::vector<double> on_host(Rank& rank, const Tensor& tensor) {
    const HostTensor values = rank.device().download(tensor);
    const auto numbers = values.values<double>();
    return {numbers.begin(), numbers.end()};
}

/// Returns a state from the inputs: the grader keeps the states between calls.
OnlineSoftmax state_of(Rank& rank, const TaskInputs& in, const std::string& name) {
    OnlineSoftmax state(in.number("rows"), in.number("width"));
    state.maximum = on_host(rank, in.tensor(name + " maximum"));
    state.sum = on_host(rank, in.tensor(name + " sum"));
    state.output = on_host(rank, in.tensor(name + " output"));
    return state;
}

void leave(Rank& rank, const OnlineSoftmax& state, TaskOutputs& out) {
    const auto put = [&](const std::string& name, const std::vector<double>& values) {
        out.tensors[name] = rank.device().upload(
            HostTensor::of({static_cast<std::int64_t>(values.size())}, values));
    };
    put("maximum", state.maximum);
    put("sum", state.sum);
    put("output", state.output);
}

void absorb(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    OnlineSoftmax state = state_of(rank, in, "state");
    adapters::absorb(state, on_host(rank, in.tensor("scores")),
                     on_host(rank, in.tensor("values")));
    leave(rank, state, out);
}

void merge(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    OnlineSoftmax state = state_of(rank, in, "state");
    adapters::merge(state, state_of(rank, in, "other"));
    leave(rank, state, out);
}

void finish(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const OnlineSoftmax state = state_of(rank, in, "state");
    out.tensors["mean"] = rank.device().upload(
        HostTensor::of({state.rows, state.width}, adapters::finish(state)));
}

Sequence sequence_of(const TaskInputs& in) {
    return {in.number("tokens"), in.number("heads"), in.number("causal") != 0};
}

Qkv own_of(const TaskInputs& in) {
    return {in.tensor("queries"), in.tensor("keys"), in.tensor("values")};
}

/// Outputs the results, and the inputs as they are after the call.
void forward(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Attended left = adapters::forward(rank, own_of(in), sequence_of(in));
    out.tensors = {{"y", left.y}, {"log_sum_exp", left.log_sum_exp}};
    out.tensors.insert(in.tensors.begin(), in.tensors.end());
}

void backward(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Attended attended{in.tensor("y"), in.tensor("log_sum_exp")};
    const Qkv left =
        adapters::backward(rank, own_of(in), attended, in.tensor("dy"), sequence_of(in));
    out.tensors = {{"dq", left.queries}, {"dk", left.keys}, {"dv", left.values}};
    out.tensors.insert(in.tensors.begin(), in.tensors.end());
}

}  // namespace

Tasks tasks() {
    return {{"absorb", absorb},
            {"merge", merge},
            {"finish", finish},
            {"forward", forward},
            {"backward", backward}};
}

}  // namespace lockstep

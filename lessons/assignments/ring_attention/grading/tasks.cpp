#include "adapters.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

std::vector<double> on_host(Rank& rank, const Tensor& tensor) {
    const HostTensor values = rank.device().download(tensor);
    const auto numbers = values.values<double>();
    return {numbers.begin(), numbers.end()};
}

void absorb_block(Rank& rank, const TaskInputs& in, std::int64_t block,
                  OnlineSoftmax& state) {
    const std::string number = std::to_string(block);
    adapters::absorb(state, on_host(rank, in.tensor("scores_" + number)),
                     on_host(rank, in.tensor("values_" + number)));
}

HostTensor finished(const OnlineSoftmax& state) {
    return HostTensor::of({state.rows, state.width}, adapters::finish(state));
}

/// A state absorbs all blocks; what comes out after each, and how large it has grown.
void absorb(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    OnlineSoftmax state(in.number("rows"), in.number("width"));
    for (std::int64_t block = 0; block < in.number("blocks"); ++block) {
        absorb_block(rank, in, block, state);
        out.values.emplace("after_" + std::to_string(block), finished(state));
    }
    const auto held = state.maximum.size() + state.sum.size() + state.output.size();
    out.values.emplace("held", HostTensor::of({1}, std::vector{double(held)}));
}

/// Two states share the blocks out, the first those before block `split`, and are merged;
/// then that state absorbs all of them once more.
void merge(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    OnlineSoftmax first(in.number("rows"), in.number("width")), second = first;
    for (std::int64_t block = 0; block < in.number("blocks"); ++block)
        absorb_block(rank, in, block, block < in.number("split") ? first : second);
    adapters::merge(first, second);
    out.values.emplace("merged", finished(first));
    for (std::int64_t block = 0; block < in.number("blocks"); ++block)
        absorb_block(rank, in, block, first);
    out.values.emplace("twice", finished(first));
}

Sequence sequence_of(const TaskInputs& in) {
    return {in.number("tokens"), in.number("heads"), in.number("causal") != 0};
}

Qkv own_of(const TaskInputs& in) {
    return {in.tensor("queries"), in.tensor("keys"), in.tensor("values")};
}

/// Leaves what comes out, and what went in as it is then.
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
            {"forward", forward},
            {"backward", backward}};
}

}  // namespace lockstep

#include "adapters.hpp"
#include "src/course/task.hpp"
#include "src/nn/flash_attention.hpp"

namespace lockstep {

namespace {

Task exchange(Tensor (*function)(Rank&, const Tensor&, int)) {
    return [function](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        out.tensors = in.tensors;
        out.tensors["left"] = function(rank, in.tensor("x"), in.integer("parts"));
    };
}

/// Outputs results, and the inputs after the call. Runs backward if dy is given.
void attend(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    FlashAttention own_heads(rank.device(),
                             {in.number("heads"), in.number("causal") != 0});
    Saved saved;
    out.tensors = in.tensors;
    out.tensors["y"] = adapters::forward(rank, in.tensor("x"), own_heads, saved);
    if (in.tensors.contains("dy"))
        out.tensors["dx"] = adapters::backward(rank, in.tensor("dy"), own_heads, saved);
}

}  // namespace

Tasks tasks() {
    return {{"to_heads", exchange(adapters::to_heads)},
            {"to_tokens", exchange(adapters::to_tokens)},
            {"forward", attend},
            {"backward", attend}};
}

}  // namespace lockstep

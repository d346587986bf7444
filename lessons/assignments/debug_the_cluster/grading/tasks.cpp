#include <fmt/format.h>

#include "adapters.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

// The names of inputs and outputs begin with the program's name, so that all six
// can run in one task.

/// Returns the inputs "name 0", "name 1" …, up to the first that is missing.
adapters::Tensors list(const TaskInputs& in, const std::string& name) {
    adapters::Tensors tensors;
    for (int i = 0;; ++i) {
        const auto found = in.tensors.find(fmt::format("{} {}", name, i));
        if (found == in.tensors.end()) return tensors;
        tensors.push_back(found->second);
    }
}

/// Adds the tensors to the outputs as "name 0", "name 1" …
void leave(TaskOutputs& out, const std::string& name, const adapters::Tensors& tensors) {
    for (std::size_t i = 0; i < tensors.size(); ++i)
        out.tensors[fmt::format("{} {}", name, i)] = tensors[i];
}

void filter(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Tensor weight = in.tensor("filter weight"), bias = in.tensor("filter bias");
    adapters::train_filtered(rank, weight, bias, list(in, "filter inputs"),
                             list(in, "filter targets"));
    out.tensors["filter weight"] = weight;
    out.tensors["filter bias"] = bias;
}

void pipeline(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Tensor gradient = in.tensor("pipeline gradient");
    adapters::pipeline_gradients(rank, in.tensor("pipeline weight"), gradient,
                                 in.integer("pipeline micro-batches"),
                                 in.number("pipeline rows"), list(in, "pipeline inputs"),
                                 list(in, "pipeline targets"));
    out.tensors["pipeline gradient"] = gradient;
}

void prefetch(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    out.tensors["prefetch y"] = adapters::prefetching_forward(
        rank, list(in, "prefetch shards"), in.tensor("prefetch x"));
}

void evaluate(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    out.tensors["evaluate loss"] =
        adapters::evaluate(rank, in.tensor("evaluate weight"), in.number("evaluate rows"),
                           in.tensor("evaluate x"), in.tensor("evaluate labels"));
}

void clip(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto sharded = list(in, "clip sharded"),
               replicated = list(in, "clip replicated");
    adapters::clip_gradients(
        rank, sharded, replicated,
        static_cast<double>(in.number("clip largest in thousandths")) / 1000);
    leave(out, "clip sharded", sharded);
    leave(out, "clip replicated", replicated);
}

void accumulate(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto gradients = list(in, "accumulate gradients");
    adapters::accumulate_gradients(rank, list(in, "accumulate weights"), gradients,
                                   list(in, "accumulate inputs"),
                                   list(in, "accumulate targets"));
    leave(out, "accumulate gradients", gradients);
}

void all(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    for (const auto program : {filter, pipeline, prefetch, evaluate, clip, accumulate})
        program(rank, in, out);
}

}  // namespace

Tasks tasks() {
    return {{"filter", filter},
            {"pipeline", pipeline},
            {"prefetch", prefetch},
            {"evaluate", evaluate},
            {"clip", clip},
            {"accumulate", accumulate},
            {"all", all}};
}

}  // namespace lockstep

#include <fmt/format.h>

#include "adapters.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

/// The inputs and outputs of one program. Their names begin with the program's, so that
/// all six can be run in one task.
class Part {
  public:
    Part(const char* program, const TaskInputs& in, TaskOutputs& out)
        : program_(program), in_(in), out_(out) {}

    const Tensor& tensor(const std::string& name) const { return in_.tensor(full(name)); }
    std::int64_t number(const std::string& name) const { return in_.number(full(name)); }
    /// "name 0", "name 1" …: as many as there are.
    adapters::Tensors tensors(const std::string& name) const {
        adapters::Tensors list;
        for (int i = 0;; ++i) {
            const auto found = in_.tensors.find(full(fmt::format("{} {}", name, i)));
            if (found == in_.tensors.end()) return list;
            list.push_back(found->second);
        }
    }

    void leave(const std::string& name, const Tensor& tensor) const {
        out_.tensors[full(name)] = tensor;
    }
    void leave(const std::string& name, const adapters::Tensors& tensors) const {
        for (std::size_t i = 0; i < tensors.size(); ++i)
            leave(fmt::format("{} {}", name, i), tensors[i]);
    }

  private:
    std::string full(const std::string& name) const { return program_ + ": " + name; }

    std::string program_;
    const TaskInputs& in_;
    TaskOutputs& out_;
};

void filter(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Part part("filter", in, out);
    adapters::train_filtered(rank, part.tensor("weight"), part.tensor("bias"),
                             part.tensors("inputs"), part.tensors("targets"));
    part.leave("weight", part.tensor("weight"));
    part.leave("bias", part.tensor("bias"));
}

void pipeline(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Part part("pipeline", in, out);
    const Tensor& gradient = part.tensor("gradient");
    adapters::pipeline_gradients(rank, part.tensor("weight"), gradient,
                                 static_cast<int>(part.number("micro-batches")),
                                 part.number("rows"), part.tensors("inputs"),
                                 part.tensors("targets"));
    part.leave("gradient", gradient);
}

void prefetch(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Part part("prefetch", in, out);
    part.leave("y", adapters::prefetching_forward(rank, part.tensors("shards"),
                                                  part.tensor("x")));
}

void evaluate(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Part part("evaluate", in, out);
    part.leave("loss",
               adapters::evaluate(rank, part.tensor("weight"), part.number("rows"),
                                  part.tensor("x"), part.tensor("labels")));
}

void clip(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Part part("clip", in, out);
    adapters::clip_gradients(
        rank, part.tensors("sharded"), part.tensors("replicated"),
        static_cast<double>(part.number("largest in thousandths")) / 1000);
    part.leave("sharded", part.tensors("sharded"));
    part.leave("replicated", part.tensors("replicated"));
}

void accumulate(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Part part("accumulate", in, out);
    adapters::accumulate_gradients(rank, part.tensors("weights"),
                                   part.tensors("gradients"), part.tensors("inputs"),
                                   part.tensors("targets"));
    part.leave("gradients", part.tensors("gradients"));
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

#include <fmt/format.h>

#include "adapters.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

/// The inputs and outputs of one program. Their names begin with the program's, so that
/// all six can be run in one task.
class ProgramTask {
  public:
    ProgramTask(const char* program, const TaskInputs& in, TaskOutputs& out)
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
    const ProgramTask task("filter", in, out);
    adapters::train_filtered(rank, task.tensor("weight"), task.tensor("bias"),
                             task.tensors("inputs"), task.tensors("targets"));
    task.leave("weight", task.tensor("weight"));
    task.leave("bias", task.tensor("bias"));
}

void pipeline(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const ProgramTask task("pipeline", in, out);
    const Tensor& gradient = task.tensor("gradient");
    adapters::pipeline_gradients(rank, task.tensor("weight"), gradient,
                                 static_cast<int>(task.number("micro-batches")),
                                 task.number("rows"), task.tensors("inputs"),
                                 task.tensors("targets"));
    task.leave("gradient", gradient);
}

void prefetch(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const ProgramTask task("prefetch", in, out);
    task.leave("y", adapters::prefetching_forward(rank, task.tensors("shards"),
                                                  task.tensor("x")));
}

void evaluate(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const ProgramTask task("evaluate", in, out);
    task.leave("loss",
               adapters::evaluate(rank, task.tensor("weight"), task.number("rows"),
                                  task.tensor("x"), task.tensor("labels")));
}

void clip(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const ProgramTask task("clip", in, out);
    adapters::clip_gradients(
        rank, task.tensors("sharded"), task.tensors("replicated"),
        static_cast<double>(task.number("largest in thousandths")) / 1000);
    task.leave("sharded", task.tensors("sharded"));
    task.leave("replicated", task.tensors("replicated"));
}

void accumulate(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const ProgramTask task("accumulate", in, out);
    adapters::accumulate_gradients(rank, task.tensors("weights"),
                                   task.tensors("gradients"), task.tensors("inputs"),
                                   task.tensors("targets"));
    task.leave("gradients", task.tensors("gradients"));
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

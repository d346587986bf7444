#include <memory>

#include <fmt/format.h>

#include "adapters.hpp"
#include "src/course/task.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

namespace {

/// The modules of a layer, with the values that the task is given: a gate, and experts of
/// two linear layers with tanh between them.
class GivenLayer {
  public:
    GivenLayer(Rank& rank, const TaskInputs& in)
        : gate_({rank.device(), DType::f64, 0, "gate", false}, in.number("hidden"),
                in.number("experts"), /*bias=*/false),
          layer_{&gate_, {}, in.number("chosen"), in.number("capacity")} {
        Device& device = rank.device();
        add_parameters(gate_, in, device);
        for (std::int64_t e = 0; e < in.number("own experts"); ++e) {
            const ParameterInit init{device, DType::f64, 0, fmt::format("expert{}", e),
                                     false};
            Sequential& expert = *experts_.emplace_back(std::make_unique<Sequential>());
            expert.add<Linear>(init.child("wide"), in.number("hidden"),
                               in.number("inner"), /*bias=*/false);
            expert.add<Tanh>(device);
            expert.add<Linear>(init.child("narrow"), in.number("inner"),
                               in.number("hidden"), /*bias=*/false);
            add_parameters(expert, in, device);
            layer_.experts.push_back(&expert);
        }
    }

    const Layer& layer() const { return layer_; }

    void leave_gradients(TaskOutputs& out) const {
        for (const Parameter* parameter : parameters_)
            out.tensors[parameter->name() + "'s gradient"] = parameter->gradient;
    }

  private:
    void add_parameters(Module& module, const TaskInputs& in, Device& device) {
        const MemoryScope scope(device, MemoryCategory::gradients);
        for (Parameter* parameter : module.parameters()) {
            parameter->value = in.tensor(parameter->name());
            parameter->gradient = device.zeros(parameter->shape(), DType::f64);
            parameters_.push_back(parameter);
        }
    }

    Linear gate_;
    std::vector<std::unique_ptr<Sequential>> experts_;
    std::vector<Parameter*> parameters_;
    Layer layer_;
};

void choose(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Chosen chosen =
        adapters::choose(rank, in.tensor("logits"), in.number("chosen"));
    out.tensors = {{"ids", chosen.ids}, {"weights", chosen.weights}};
}

void forward(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const GivenLayer given(rank, in);
    out.tensors["y"] = adapters::forward(rank, given.layer(), in.tensor("x"));
    out.tensors["x afterwards"] = in.tensor("x");
}

void pass(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const GivenLayer given(rank, in);
    const Passed passed =
        adapters::pass(rank, given.layer(), in.tensor("x"), in.tensor("dy"));
    out.tensors = {{"y", passed.y},
                   {"dx", passed.dx},
                   {"x afterwards", in.tensor("x")},
                   {"dy afterwards", in.tensor("dy")}};
    given.leave_gradients(out);
}

}  // namespace

Tasks tasks() {
    return {{"choose", choose}, {"forward", forward}, {"pass", pass}};
}

}  // namespace lockstep

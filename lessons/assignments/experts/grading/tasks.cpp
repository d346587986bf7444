#include <memory>

#include <fmt/format.h>

#include "adapters.hpp"
#include "src/course/task.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

namespace {

/// The modules of a layer, over the values that the task is given: a gate, and experts
/// that are two linear layers with tanh between them.
class GivenLayer {
  public:
    GivenLayer(Rank& rank, const TaskInputs& in)
        : gate_({rank.device(), DType::f64, 0, "gate", false}, in.number("hidden"),
                in.number("experts"), /*bias=*/false) {
        Device& device = rank.device();
        gate_.weight().value = in.tensor("gate");
        make_gradient(device, gate_.weight());
        layer_.gate = &gate_;
        layer_.chosen = in.number("chosen");
        layer_.capacity = in.number("capacity");
        for (std::int64_t e = 0; e < in.number("own experts"); ++e) {
            const std::string name = fmt::format("expert{}", e);
            const ParameterInit init{device, DType::f64, 0, name, false};
            Sequential& expert = *experts_.emplace_back(std::make_unique<Sequential>());
            Linear& wide = expert.add<Linear>(init.child("wide"), in.number("hidden"),
                                              in.number("inner"), /*bias=*/false);
            expert.add<Tanh>(device);
            Linear& narrow = expert.add<Linear>(init.child("narrow"), in.number("inner"),
                                                in.number("hidden"), /*bias=*/false);
            wide.weight().value = in.tensor(name + " wide");
            narrow.weight().value = in.tensor(name + " narrow");
            for (Linear* linear : {&wide, &narrow}) {
                make_gradient(device, linear->weight());
                linears_.push_back(linear);
            }
            layer_.experts.push_back(&expert);
        }
    }

    const Layer& layer() const { return layer_; }

    void leave_gradients(TaskOutputs& out) {
        out.tensors["gate's gradient"] = gate_.weight().gradient;
        for (std::size_t i = 0; i < linears_.size(); ++i)
            out.tensors[fmt::format("expert{} {}'s gradient", i / 2,
                                    i % 2 == 0 ? "wide" : "narrow")] =
                linears_[i]->weight().gradient;
    }

  private:
    static void make_gradient(Device& device, Parameter& parameter) {
        const MemoryScope scope(device, MemoryCategory::gradients);
        parameter.gradient = device.zeros(parameter.shape(), DType::f64);
    }

    Linear gate_;
    std::vector<std::unique_ptr<Sequential>> experts_;
    std::vector<Linear*> linears_;
    Layer layer_{};
};

void choose(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const Chosen chosen =
        adapters::choose(rank, in.tensor("logits"), in.number("chosen"));
    out.tensors = {{"ids", chosen.ids}, {"weights", chosen.weights}};
}

void forward(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const GivenLayer given(rank, in);
    out.tensors["y"] = adapters::forward(rank, given.layer(), in.tensor("x"));
    out.tensors["given x"] = in.tensor("x");
}

void pass(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    GivenLayer given(rank, in);
    const Passed passed =
        adapters::pass(rank, given.layer(), in.tensor("x"), in.tensor("dy"));
    out.tensors = {{"y", passed.y},
                   {"dx", passed.dx},
                   {"given x", in.tensor("x")},
                   {"given dy", in.tensor("dy")}};
    given.leave_gradients(out);
}

}  // namespace

Tasks tasks() {
    return {{"choose", choose}, {"forward", forward}, {"pass", pass}};
}

}  // namespace lockstep

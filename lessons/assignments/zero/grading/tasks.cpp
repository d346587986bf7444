#include <algorithm>

#include <fmt/format.h>

#include "adapters.hpp"
#include "lessons/assignments/given_batches.hpp"
#include "src/course/task.hpp"

namespace lockstep {

namespace {

/// A layer that says when it runs forward and backward, so that the checker of stale
/// weights (F25) knows what each pass reads.
class PhasedLayer : public Module {
  public:
    explicit PhasedLayer(Device& device) : device_(device) {}

    Sequential& layer() { return layer_; }
    std::vector<Parameter*> parameters() override { return layer_.parameters(); }
    void each_part(FunctionRef<void(Module&)> visit) override { visit(layer_); }

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override {
        const PhaseScope phase(device_, Phase::forward);
        return layer_.forward(x, saved);
    }
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override {
        const PhaseScope phase(device_, Phase::backward_input);
        return layer_.backward_input(dy, saved);
    }
    void do_backward_weight(Saved& saved) override {
        const PhaseScope phase(device_, Phase::backward_weight);
        layer_.backward_weight(saved);
    }
    Tensor do_backward(const Tensor& dy, Saved& saved) override {
        const PhaseScope phase(device_, Phase::backward);
        return layer_.backward(dy, saved);
    }

    Device& device_;
    Sequential layer_;
};

/// Makes linear layers with tanh between them, from the values that the task is given.
/// `modules` keeps the modules.
Layers layers_of(Device& device, const TaskInputs& in, bool whole,
                 std::vector<std::unique_ptr<PhasedLayer>>& modules) {
    Layers layers;
    const int count = in.integer("layers");
    for (int i = 0; i < count; ++i) {
        const std::string name = fmt::format("layer{}", i);
        modules.push_back(std::make_unique<PhasedLayer>(device));
        Sequential& layer = modules.back()->layer();
        layer.add<Linear>(ParameterInit{device, DType::f64, 0, name, false},
                          in.number(name + " in"), in.number(name + " out"));
        if (i + 1 < count) layer.add<Tanh>(device);
        const Tensor& values = in.tensor(name);
        std::int64_t begin = 0;
        for (Parameter* parameter : modules.back()->parameters()) {
            const Shape& shape = parameter->shape();
            if (whole)
                parameter->value = values.slice(begin, shape.elements()).reshaped(shape);
            begin += shape.elements();
        }
        layers.push_back({modules.back().get(), values});
    }
    return layers;
}

/// Returns the rank's values of a layer, without the zeros at the end; no tensor if all
/// are zeros.
Tensor left_of(const Layer& layer, const Rank& rank, bool whole) {
    std::int64_t count = 0;
    for (const Parameter* parameter : layer.module->parameters())
        count += parameter->shape().elements();
    if (!whole) count -= rank.index() * layer.values.elements();
    return count > 0 ? layer.values.slice(0, std::min(count, layer.values.elements()))
                     : Tensor();
}

using Stage = void (*)(Rank&, const Layers&, const MicroBatches&, const Training&);

Task task_of(Stage stage, bool whole) {
    return [=](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        std::vector<std::unique_ptr<PhasedLayer>> modules;
        const Layers layers = layers_of(rank.device(), in, whole, modules);
        Training training{in.integer("steps"), {}};
        training.adamw.learning_rate = in_thousandths(in, "learning rate");
        training.adamw.weight_decay = in_thousandths(in, "weight decay");
        training.adamw.epsilon = in_thousandths(in, "epsilon");
        stage(rank, layers, given_batches<MicroBatch>(in), training);
        for (std::size_t i = 0; i < layers.size(); ++i)
            out.tensors[fmt::format("layer{}", i)] = left_of(layers[i], rank, whole);
    };
}

}  // namespace

Tasks tasks() {
    return {{"stage_1", task_of(adapters::stage_1, true)},
            {"stage_2", task_of(adapters::stage_2, true)},
            {"stage_3", task_of(adapters::stage_3, false)}};
}

}  // namespace lockstep

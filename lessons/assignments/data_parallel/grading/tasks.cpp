#include "adapters.hpp"
#include "src/course/task.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

namespace {

/// Linear, tanh, linear, with the parameters that the task is given; gradients hold what
/// somebody left there.
std::unique_ptr<Sequential> network_of(Device& device, const TaskInputs& in) {
    const Shape hidden = in.tensor("hidden.weight").shape();
    const Shape output = in.tensor("output.weight").shape();
    auto network = std::make_unique<Sequential>();
    network->add<Linear>(ParameterInit{device, DType::f64, 0, "hidden"}, hidden[1],
                         hidden[0]);
    network->add<Tanh>(device);
    network->add<Linear>(ParameterInit{device, DType::f64, 0, "output"}, output[1],
                         output[0]);
    network->set_input_gradient(false);
    for (Parameter* parameter : network->parameters()) {
        parameter->value = in.tensor(parameter->name());
        device.fill(parameter->gradient,
                    static_cast<double>(in.number("gradients before")));
    }
    return network;
}

Shard shard_of(const TaskInputs& in) {
    return {in.tensor("x"), in.tensor("targets"), in.number("batch rows")};
}

using Gradient = Tensor (*)(Rank&, Module&, const Shard&, std::int64_t);

Task gradient(Gradient function) {
    return [function](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        const auto network = network_of(rank.device(), in);
        out.tensors["loss"] =
            function(rank, *network, shard_of(in), in.number("most rows"));
        for (const Parameter* parameter : network->parameters())
            out.tensors[parameter->name()] = parameter->gradient;
    };
}

void train(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto network = network_of(rank.device(), in);
    out.tensors["losses"] = adapters::train(
        rank, *network, shard_of(in), in.number("most rows"), in.integer("steps"),
        static_cast<double>(in.number("learning rate in thousandths")) / 1000);
    for (const Parameter* parameter : network->parameters())
        out.tensors[parameter->name()] = parameter->value;
}

}  // namespace

Tasks tasks() {
    return {{"shard_gradient", gradient(adapters::shard_gradient)},
            {"batch_gradient", gradient(adapters::batch_gradient)},
            {"train", train}};
}

}  // namespace lockstep

#include <fmt/format.h>

#include "adapters.hpp"
#include "lessons/assignments/given_batches.hpp"
#include "src/course/task.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

namespace {

/// Linear layers with tanh between, with the parameters that the task is given; gradients
/// hold what somebody left there.
std::unique_ptr<Sequential> network_of(Device& device, const TaskInputs& in) {
    auto network = std::make_unique<Sequential>();
    const int layers = in.integer("layers");
    for (int layer = 0; layer < layers; ++layer) {
        const std::string name = fmt::format("layer{}", layer);
        const Shape shape = in.tensor(name + ".weight").shape();
        network->add<Linear>(ParameterInit{device, DType::f64, 0, name, false}, shape[1],
                             shape[0]);
        if (layer + 1 < layers) network->add<Tanh>(device);
    }
    network->set_input_gradient(false);
    for (Parameter* parameter : network->parameters()) {
        parameter->value = in.tensor(parameter->name());
        const MemoryScope scope(device, MemoryCategory::gradients);
        parameter->gradient = device.empty(parameter->shape(), DType::f64);
        device.fill(parameter->gradient,
                    static_cast<double>(in.number("gradients before")));
    }
    return network;
}

BucketLimits limits_of(const TaskInputs& in) {
    return {in.number("first bytes"), in.number("bytes")};
}

void make_buckets(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto network = network_of(rank.device(), in);
    const std::vector<Tensor> buckets =
        adapters::make_buckets(rank, *network, limits_of(in));
    // Views show what is written to the gradients.
    double number = 0;
    for (const Parameter* parameter : network->parameters())
        rank.device().fill(parameter->gradient, ++number);
    for (std::size_t i = 0; i < buckets.size(); ++i)
        out.tensors[fmt::format("bucket {}", i)] = buckets[i];
}

void batch_gradient(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto network = network_of(rank.device(), in);
    out.tensors["loss"] = adapters::batch_gradient(
        rank, *network, given_batches<MicroBatch>(in), limits_of(in));
    for (const Parameter* parameter : network->parameters())
        out.tensors[parameter->name()] = parameter->gradient;
}

void train(Rank& rank, const TaskInputs& in, TaskOutputs& out) {
    const auto network = network_of(rank.device(), in);
    out.tensors["losses"] = adapters::train(
        rank, *network, given_batches<MicroBatch>(in), limits_of(in), in.integer("steps"),
        static_cast<double>(in.number("learning rate in thousandths")) / 1000);
    for (const Parameter* parameter : network->parameters())
        out.tensors[parameter->name()] = parameter->value;
}

}  // namespace

Tasks tasks() {
    return {{"make_buckets", make_buckets},
            {"batch_gradient", batch_gradient},
            {"train", train}};
}

}  // namespace lockstep

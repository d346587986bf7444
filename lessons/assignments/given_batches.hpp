#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "src/course/task.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep {

/// Returns the micro-batches from inputs that run_on_rows() (micro_batches.hpp) made, in
/// the handout's type: x, targets, and the micro-batch's share of all ranks' rows.
template <typename MicroBatch>
std::vector<MicroBatch> given_batches(const TaskInputs& in) {
    std::vector<MicroBatch> batches;
    const auto all = static_cast<double>(in.number("batch rows"));
    std::int64_t begin = 0;
    for (int i = 0; i < in.integer("micro-batches"); ++i) {
        const std::int64_t rows = in.number(fmt::format("rows {}", i));
        batches.push_back({in.tensor("x").rows(begin, rows),
                           in.tensor("targets").rows(begin, rows),
                           static_cast<double>(rows) / all});
        begin += rows;
    }
    return batches;
}

/// Returns the network from inputs that run_on_network() made: linear layers with tanh
/// between them. Its gradients are filled with the input "gradients before".
inline std::unique_ptr<Sequential> given_network(Device& device, const TaskInputs& in) {
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

/// Returns the input "NAME in thousandths", divided by 1000.
inline double in_thousandths(const TaskInputs& in, const std::string& name) {
    return static_cast<double>(in.number(name + " in thousandths")) / 1000;
}

}  // namespace lockstep

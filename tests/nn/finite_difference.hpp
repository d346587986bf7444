// Gradients of a module, by its backward and by central finite differences.
#pragma once

#include <map>
#include <string>

#include "tests/nn/fixture.hpp"

namespace lockstep::nn_test {

/// Derivatives of the number L = sum over y of dy * y. Ids have no gradient.
struct Gradients {
    HostTensor input;
    std::map<std::string, HostTensor> parameters;

    bool operator==(const Gradients&) const = default;
};

enum class Backward { whole, halves };

/// Computes gradients by the module's own backward, whole or in two halves.
inline Gradients gradients(Device& device, Module& module, const HostTensor& x,
                           const HostTensor& dy, Backward backward = Backward::whole) {
    zero_gradients(module);
    Saved saved;
    module.forward(device.upload(x), saved);
    const Tensor gradient = device.upload(dy);
    Tensor dx;
    if (backward == Backward::whole) {
        dx = module.backward(gradient, saved);
    } else {
        dx = module.backward_input(gradient, saved);
        module.backward_weight(saved);
    }

    Gradients result;
    if (dx) result.input = device.download(dx);
    for (const Parameter* parameter : module.parameters())
        result.parameters[parameter->name()] = device.download(parameter->gradient);
    return result;
}

/// Returns dL/dv for each value v = values[i]: (L(v + h) - L(v - h)) / 2h, with an error
/// of h^2 L''' / 6. `loss` is called with the changed values.
template <typename Loss>
HostTensor central_differences(HostTensor values, Loss&& loss) {
    constexpr double kStep = 1e-5;
    HostTensor result(values.shape(), DType::f64);
    for (std::int64_t i = 0; i < values.elements(); ++i) {
        const double value = values.at(i);
        values.set(i, value + kStep);
        const double above = loss(values);
        values.set(i, value - kStep);
        const double below = loss(values);
        values.set(i, value);
        result.set(i, (above - below) / (2 * kStep));
    }
    return result;
}

/// Computes gradients with forward only: changes each element of the input and of the
/// parameters.
inline Gradients finite_differences(Device& device, Module& module, const HostTensor& x,
                                    const HostTensor& dy) {
    const auto loss = [&](const HostTensor& input) {
        Saved saved;
        const HostTensor y = device.download(module.forward(device.upload(input), saved));
        double sum = 0;
        for (std::int64_t i = 0; i < y.elements(); ++i)
            sum += dy.at(i) * y.at(i);
        return sum;
    };

    Gradients result;
    if (x.dtype() != DType::i32) result.input = central_differences(x, loss);
    for (const Parameter* parameter : module.parameters()) {
        const HostTensor value = device.download(parameter->value);
        const auto loss_with = [&](const HostTensor& changed) {
            device.upload_into(parameter->value, changed);
            return loss(x);
        };
        result.parameters[parameter->name()] = central_differences(value, loss_with);
        device.upload_into(parameter->value, value);
    }
    return result;
}

/// Requires that backward agrees with finite differences within 1e-6 of each gradient's
/// largest element, and that backward in two halves gives the same bits.
inline void require_true_gradients(Device& device, Module& module, const HostTensor& x) {
    constexpr double kBound = 1e-6;
    Saved saved;
    const Shape shape = module.forward(device.upload(x), saved).shape();
    const HostTensor dy = normal_values(shape, "dy");

    const Gradients whole = gradients(device, module, x, dy, Backward::whole);
    const Gradients expected = finite_differences(device, module, x, dy);
    CHECK(relative_difference(whole.input, expected.input) <= kBound);
    REQUIRE(whole.parameters.size() == expected.parameters.size());
    for (const auto& [name, gradient] : expected.parameters) {
        INFO(name);
        CHECK(largest(gradient) > 0);
        CHECK(relative_difference(whole.parameters.at(name), gradient) <= kBound);
    }
    CHECK(gradients(device, module, x, dy, Backward::halves) == whole);
}

}  // namespace lockstep::nn_test

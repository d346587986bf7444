#include "lessons/assignments/data_parallel/grading/one_device.hpp"

#include <algorithm>
#include <cmath>
#include <span>

namespace lockstep::lessons {

namespace {

using Vector = std::vector<double>;

void add_to(HostTensor& tensor, std::int64_t index, double value) {
    tensor.set(index, tensor.at(index) + value);
}

/// W x + b
Vector layer(const HostTensor& weight, const HostTensor& bias, const Vector& x) {
    Vector y(static_cast<std::size_t>(bias.elements()));
    for (std::size_t out = 0; out < y.size(); ++out) {
        y[out] = bias.at(static_cast<std::int64_t>(out));
        for (std::size_t in = 0; in < x.size(); ++in)
            y[out] += weight.at(static_cast<std::int64_t>(out * x.size() + in)) * x[in];
    }
    return y;
}

/// Adds dy x^T and dy to the gradients; gives W^T dy.
Vector layer_backward(const HostTensor& weight, HostTensor& weight_gradient,
                      HostTensor& bias_gradient, const Vector& x, const Vector& dy) {
    Vector dx(x.size());
    for (std::size_t out = 0; out < dy.size(); ++out) {
        add_to(bias_gradient, static_cast<std::int64_t>(out), dy[out]);
        for (std::size_t in = 0; in < x.size(); ++in) {
            const auto place = static_cast<std::int64_t>(out * x.size() + in);
            add_to(weight_gradient, place, dy[out] * x[in]);
            dx[in] += weight.at(place) * dy[out];
        }
    }
    return dx;
}

Vector softmax(const Vector& logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    Vector shares;
    double sum = 0;
    for (const double logit : logits)
        sum += shares.emplace_back(std::exp(logit - largest));
    for (double& share : shares)
        share /= sum;
    return shares;
}

/// Adds `weight` times a row's loss and its gradients to `total`.
void add_row(MeanLoss& total, const NetworkTensors& network, const Vector& x,
             std::size_t target, double weight) {
    Vector hidden = layer(network.at("hidden.weight"), network.at("hidden.bias"), x);
    for (double& unit : hidden)
        unit = std::tanh(unit);
    Vector gradient =
        softmax(layer(network.at("output.weight"), network.at("output.bias"), hidden));
    total.loss -= weight * std::log(gradient[target]);

    gradient[target] -= 1;
    for (double& value : gradient)
        value *= weight;
    NetworkTensors& sums = total.gradients;
    gradient = layer_backward(network.at("output.weight"), sums.at("output.weight"),
                              sums.at("output.bias"), hidden, gradient);
    for (std::size_t i = 0; i < hidden.size(); ++i)
        gradient[i] *= 1 - hidden[i] * hidden[i];
    layer_backward(network.at("hidden.weight"), sums.at("hidden.weight"),
                   sums.at("hidden.bias"), x, gradient);
}

}  // namespace

MeanLoss mean_loss(const NetworkTensors& network,
                   const std::vector<ClassifiedRows>& parts) {
    MeanLoss mean;
    for (const auto& [name, tensor] : network)
        mean.gradients.emplace(name, HostTensor(tensor.shape(), DType::f64));
    std::int64_t rows = 0;
    for (const ClassifiedRows& part : parts)
        rows += part.targets.elements();
    for (const ClassifiedRows& part : parts)
        for (std::int64_t row = 0; row < part.targets.elements(); ++row) {
            const HostTensor one = part.x.rows(row, 1);
            const std::span<const double> x = one.values<double>();
            add_row(mean, network, Vector(x.begin(), x.end()),
                    static_cast<std::size_t>(part.targets.at(row)),
                    1 / static_cast<double>(rows));
        }
    return mean;
}

}  // namespace lockstep::lessons

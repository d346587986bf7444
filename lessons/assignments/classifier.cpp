#include "lessons/assignments/classifier.hpp"

#include <algorithm>
#include <cmath>
#include <span>

#include <fmt/format.h>

namespace lockstep::lessons {

namespace {

using Vector = std::vector<double>;

/// W x + b
Vector layer(std::span<const double> weight, std::span<const double> bias,
             const Vector& x) {
    Vector y(bias.begin(), bias.end());
    for (std::size_t out = 0; out < y.size(); ++out)
        for (std::size_t in = 0; in < x.size(); ++in)
            y[out] += weight[out * x.size() + in] * x[in];
    return y;
}

/// Adds dy x^T and dy to the gradients; gives W^T dy.
Vector layer_backward(std::span<const double> weight, std::span<double> weight_gradient,
                      std::span<double> bias_gradient, const Vector& x,
                      const Vector& dy) {
    Vector dx(x.size());
    for (std::size_t out = 0; out < dy.size(); ++out) {
        bias_gradient[out] += dy[out];
        for (std::size_t in = 0; in < x.size(); ++in) {
            weight_gradient[out * x.size() + in] += dy[out] * x[in];
            dx[in] += weight[out * x.size() + in] * dy[out];
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
void add_row(MeanLoss& total, const std::vector<std::string>& layers,
             const NetworkTensors& network, const Vector& x, std::size_t target,
             double weight) {
    // inputs[i] is what layer i makes its output of.
    std::vector<Vector> inputs{x};
    for (const std::string& name : layers) {
        Vector y = layer(network.at(name + ".weight").values<double>(),
                         network.at(name + ".bias").values<double>(), inputs.back());
        if (&name != &layers.back())
            for (double& unit : y)
                unit = std::tanh(unit);
        inputs.push_back(std::move(y));
    }
    Vector gradient = softmax(inputs.back());
    total.loss -= weight * std::log(gradient[target]);

    gradient[target] -= 1;
    for (double& value : gradient)
        value *= weight;
    for (std::size_t i = layers.size(); i-- > 0;) {
        gradient =
            layer_backward(network.at(layers[i] + ".weight").values<double>(),
                           total.gradients.at(layers[i] + ".weight").values<double>(),
                           total.gradients.at(layers[i] + ".bias").values<double>(),
                           inputs[i], gradient);
        if (i > 0)
            for (std::size_t unit = 0; unit < gradient.size(); ++unit)
                gradient[unit] *= 1 - inputs[i][unit] * inputs[i][unit];
    }
}

}  // namespace

ClassifiedRows draw_rows(const Judge& judge, const std::string& name, std::int64_t rows,
                         std::int64_t features, std::int64_t classes) {
    HostTensor targets({rows}, DType::i32);
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::string target = fmt::format("{}, row {}", name, row);
        targets.set(row, static_cast<double>(judge.draw(target, 0, classes - 1)));
    }
    return {judge.normal(name, {rows, features}), targets};
}

MeanLoss mean_loss(const std::vector<std::string>& layers, const NetworkTensors& network,
                   const std::vector<ClassifiedRows>& shards) {
    MeanLoss mean;
    for (const auto& [name, tensor] : network)
        mean.gradients.emplace(name, HostTensor(tensor.shape(), DType::f64));
    std::int64_t rows = 0;
    for (const ClassifiedRows& shard : shards)
        rows += shard.targets.elements();
    for (const ClassifiedRows& shard : shards)
        for (std::int64_t row = 0; row < shard.targets.elements(); ++row) {
            const HostTensor one = shard.x.rows(row, 1);
            const std::span<const double> x = one.values<double>();
            add_row(mean, layers, network, Vector(x.begin(), x.end()),
                    static_cast<std::size_t>(shard.targets.at(row)),
                    1 / static_cast<double>(rows));
        }
    return mean;
}

Trained train_alone(const std::vector<std::string>& layers, NetworkTensors network,
                    const std::vector<ClassifiedRows>& shards, int steps,
                    double learning_rate) {
    Trained alone{std::move(network), {}};
    for (int step = 0; step < steps; ++step) {
        const MeanLoss mean = mean_loss(layers, alone.network, shards);
        alone.losses.push_back(mean.loss);
        for (auto& [name, tensor] : alone.network) {
            const std::span<const double> by = mean.gradients.at(name).values<double>();
            std::size_t i = 0;
            for (double& value : tensor.values<double>())
                value -= learning_rate * by[i++];
        }
    }
    return alone;
}

}  // namespace lockstep::lessons

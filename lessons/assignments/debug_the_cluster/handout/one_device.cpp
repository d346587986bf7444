#include "one_device.hpp"

#include <cmath>

using lockstep::DType;

namespace one_device {

namespace {

HostTensor transposed(const HostTensor& a) {
    const std::int64_t rows = a.shape().matrix_rows(), columns = a.shape().columns();
    HostTensor b({columns, rows}, DType::f64);
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
            b.set(j * rows + i, a.at(i * columns + j));
    return b;
}

HostTensor matmul(const HostTensor& a, const HostTensor& b) {
    const std::int64_t rows = a.shape().matrix_rows(), inner = a.shape().columns();
    const std::int64_t columns = b.shape().columns();
    HostTensor c({rows, columns}, DType::f64);
    const double* const from_a = a.values<double>().data();
    const double* const from_b = b.values<double>().data();
    double* const to = c.values<double>().data();
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t k = 0; k < inner; ++k)
            for (std::int64_t j = 0; j < columns; ++j)
                to[i * columns + j] += from_a[i * inner + k] * from_b[k * columns + j];
    return c;
}

/// Returns a + factor b.
HostTensor sum(HostTensor a, const HostTensor& b, double factor = 1) {
    for (std::int64_t i = 0; i < a.elements(); ++i)
        a.set(i, a.at(i) + factor * b.at(i));
    return a;
}

HostTensor tanh(HostTensor x) {
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, std::tanh(x.at(i)));
    return x;
}

HostTensor tanh_backward(const HostTensor& y, HostTensor dy) {
    for (std::int64_t i = 0; i < y.elements(); ++i)
        dy.set(i, dy.at(i) * (1 - y.at(i) * y.at(i)));
    return dy;
}

HostTensor sum_of_rows(const HostTensor& x) {
    const std::int64_t columns = x.shape().columns();
    HostTensor row({columns}, DType::f64);
    for (std::int64_t i = 0; i < x.elements(); ++i)
        row.set(i % columns, row.at(i % columns) + x.at(i));
    return row;
}

HostTensor with_bias(HostTensor x, const HostTensor& bias) {
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, x.at(i) + bias.at(i % bias.elements()));
    return x;
}

/// Returns the gradient of the squared error.
HostTensor error(const HostTensor& y, const HostTensor& target, double factor = 1) {
    HostTensor dy(y.shape(), DType::f64);
    for (std::int64_t i = 0; i < y.elements(); ++i)
        dy.set(i, 2 * factor * (y.at(i) - target.at(i)));
    return dy;
}

HostTensor zeros_like(const HostTensor& a) {
    return HostTensor(a.shape(), DType::f64);
}

}  // namespace

HostTensors train_filtered(HostTensor weight, HostTensor bias,
                           const std::vector<HostTensors>& inputs,
                           const std::vector<HostTensors>& targets) {
    constexpr double kLearningRate = 0.01;
    for (std::size_t step = 0; step < inputs.size(); ++step) {
        HostTensor d_weight = zeros_like(weight), d_bias = zeros_like(bias);
        for (std::size_t part = 0; part < inputs[step].size(); ++part) {
            const HostTensor& x = inputs[step][part];
            const HostTensor dy =
                error(with_bias(matmul(x, weight), bias), targets[step][part]);
            d_weight = sum(d_weight, matmul(transposed(x), dy));
            d_bias = sum(d_bias, sum_of_rows(dy));
        }
        weight = sum(weight, d_weight, -kLearningRate);
        bias = sum(bias, d_bias, -kLearningRate);
    }
    return {weight, bias};
}

HostTensors pipeline_gradients(const HostTensors& weights, const HostTensors& inputs,
                               const HostTensors& targets) {
    HostTensors gradients;
    for (const HostTensor& weight : weights)
        gradients.push_back(zeros_like(weight));
    for (std::size_t batch = 0; batch < inputs.size(); ++batch) {
        HostTensors x{inputs[batch]};
        for (const HostTensor& weight : weights)
            x.push_back(tanh(matmul(x.back(), weight)));
        HostTensor dy = error(x.back(), targets[batch]);
        for (std::size_t layer = weights.size(); layer-- > 0;) {
            const HostTensor d_product = tanh_backward(x[layer + 1], dy);
            gradients[layer] =
                sum(gradients[layer], matmul(transposed(x[layer]), d_product));
            dy = matmul(d_product, transposed(weights[layer]));
        }
    }
    return gradients;
}

HostTensor forward(const HostTensors& weights, HostTensor x) {
    for (const HostTensor& weight : weights)
        x = tanh(matmul(x, weight));
    return x;
}

HostTensor evaluate(const HostTensor& weight, const HostTensor& x,
                    const HostTensor& labels) {
    const HostTensor logits = matmul(x, weight);
    const std::int64_t rows = x.shape().matrix_rows(), classes = weight.shape().columns();
    double losses = 0;
    for (std::int64_t row = 0; row < rows; ++row) {
        double sum_of_exp = 0;
        for (std::int64_t c = 0; c < classes; ++c)
            sum_of_exp += std::exp(logits.at(row * classes + c));
        const auto label = static_cast<std::int64_t>(labels.at(row));
        losses += std::log(sum_of_exp) - logits.at(row * classes + label);
    }
    HostTensor mean({1}, DType::f64);
    mean.set(0, losses / static_cast<double>(rows));
    return mean;
}

double clip_factor(const HostTensors& gradients, double largest) {
    double squares = 0;
    for (const HostTensor& gradient : gradients)
        for (std::int64_t i = 0; i < gradient.elements(); ++i)
            squares += gradient.at(i) * gradient.at(i);
    return std::min(1.0, largest / std::sqrt(squares));
}

HostTensors accumulate_gradients(const HostTensors& weights, const HostTensors& inputs,
                                 const HostTensors& targets) {
    HostTensors gradients{zeros_like(weights[0]), zeros_like(weights[1])};
    const double share = 1.0 / static_cast<double>(inputs.size());
    for (std::size_t batch = 0; batch < inputs.size(); ++batch) {
        const HostTensor hidden = tanh(matmul(inputs[batch], weights[0]));
        const HostTensor dy = error(matmul(hidden, weights[1]), targets[batch], share);
        const HostTensor d_hidden = matmul(dy, transposed(weights[1]));
        gradients[0] = sum(gradients[0], matmul(transposed(inputs[batch]),
                                                tanh_backward(hidden, d_hidden)));
        gradients[1] = sum(gradients[1], matmul(transposed(hidden), dy));
    }
    return gradients;
}

}  // namespace one_device

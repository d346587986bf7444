// Data parallelism in which each rank computes several micro-batches in a step.

#include "programs.hpp"

using namespace lockstep;

namespace {

/// Returns gradients of W1 and W2 of one micro-batch's squared error, times `share`.
std::vector<Tensor> backward(Device& device, const std::vector<Tensor>& weights,
                             const Tensor& x, const Tensor& target, double share) {
    const Tensor hidden = device.tanh(device.matmul(x, weights[0]));
    const Tensor y = device.matmul(hidden, weights[1]);
    const Tensor dy = device.squared_error_backward(y, target, share);
    const Tensor d_hidden = device.matmul(dy, weights[1], {.transpose_b = true});
    const Tensor d_product = device.tanh_backward(hidden, d_hidden);
    return {device.matmul(x, d_product, {.transpose_a = true}),
            device.matmul(hidden, dy, {.transpose_a = true})};
}

}  // namespace

void accumulate_gradients(Rank& rank, const std::vector<Tensor>& weights,
                          const std::vector<Tensor>& gradients,
                          const std::vector<Tensor>& inputs,
                          const std::vector<Tensor>& targets) {
    Device& device = rank.device();
    for (const Tensor& gradient : gradients)
        device.fill(gradient, 0);
    const double share = 1.0 / static_cast<double>(inputs.size());
    for (std::size_t batch = 0; batch < inputs.size(); ++batch) {
        const std::vector<Tensor> parts =
            backward(device, weights, inputs[batch], targets[batch], share);
        for (std::size_t i = 0; i < gradients.size(); ++i) {
            rank.world().all_reduce(parts[i], Reduction::mean).wait();
            device.add(gradients[i], parts[i]);
        }
    }
}

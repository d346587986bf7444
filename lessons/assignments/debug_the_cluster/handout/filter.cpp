// Data parallelism over documents. Some were too long for the model and were taken out.

#include "programs.hpp"

using namespace lockstep;

namespace {

constexpr SgdOptions kSgd{.learning_rate = 0.01};

/// Computes the gradient of the squared error, summed over this rank's documents.
void backward(Device& device, const Tensor& x, const Tensor& error,
              const Tensor& d_weight, const Tensor& d_bias) {
    device.matmul_into(d_weight, x, error, {.transpose_a = true});
    device.fill(d_bias, 0);
    device.accumulate_rows(d_bias, error);
}

}  // namespace

void train_filtered(Rank& rank, const Tensor& weight, const Tensor& bias,
                    const std::vector<Tensor>& inputs,
                    const std::vector<Tensor>& targets) {
    Device& device = rank.device();
    const Tensor d_weight = device.empty(weight.shape(), weight.dtype());
    const Tensor d_bias = device.empty(bias.shape(), bias.dtype());
    for (std::size_t step = 0; step < inputs.size(); ++step) {
        const Tensor& x = inputs[step];
        if (x.elements() == 0) continue;  // all were too long
        const Tensor y = device.matmul(x, weight);
        device.add_bias(y, bias);
        const Tensor error = device.squared_error_backward(y, targets[step], 1);
        backward(device, x, error, d_weight, d_bias);
        rank.world().group().all_reduce(d_weight).all_reduce(d_bias).start().wait();
        device.sgd(weight, d_weight, Tensor(), kSgd);
        device.sgd(bias, d_bias, Tensor(), kSgd);
    }
}

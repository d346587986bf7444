#pragma once

#include <vector>

#include "src/core/host_tensor.hpp"

// The results of the six programs, as one device with all data would compute them:
// plain loops on the host.

namespace one_device {

using lockstep::HostTensor;
using HostTensors = std::vector<HostTensor>;

/// Returns weight and bias after training. Takes inputs[step][rank], and targets.
HostTensors train_filtered(HostTensor weight, HostTensor bias,
                           const std::vector<HostTensors>& inputs,
                           const std::vector<HostTensors>& targets);

/// Returns the gradient of every stage's weight. Takes inputs[micro-batch], and targets.
HostTensors pipeline_gradients(const HostTensors& weights, const HostTensors& inputs,
                               const HostTensors& targets);

/// Returns tanh(… tanh(x W0) W1 …).
HostTensor forward(const HostTensors& weights, HostTensor x);

/// Returns the mean over all rows, of shape (1).
HostTensor evaluate(const HostTensor& weight, const HostTensor& x,
                    const HostTensor& labels);

/// Returns the factor by which clipping to the norm `largest` scales the gradients.
double clip_factor(const HostTensors& gradients, double largest);

/// Returns gradients of W1 and W2, averaged over all micro-batches of all ranks.
HostTensors accumulate_gradients(const HostTensors& weights, const HostTensors& inputs,
                                 const HostTensors& targets);

}  // namespace one_device

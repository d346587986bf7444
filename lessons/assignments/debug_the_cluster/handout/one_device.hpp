#pragma once

#include <vector>

#include "src/core/host_tensor.hpp"

// The six programs compute this, as one device with all data would: plain loops on the
// host.

namespace one_device {

using lockstep::HostTensor;
using HostTensors = std::vector<HostTensor>;

/// Weight and bias after training. inputs[step][rank], and targets.
HostTensors train_filtered(HostTensor weight, HostTensor bias,
                           const std::vector<HostTensors>& inputs,
                           const std::vector<HostTensors>& targets);

/// The gradient of every stage's weight. inputs[micro-batch], and targets.
HostTensors pipeline_gradients(const HostTensors& weights, const HostTensors& inputs,
                               const HostTensors& targets);

/// tanh(… tanh(x W0) W1 …).
HostTensor forward(const HostTensors& weights, HostTensor x);

/// The mean over all rows, of shape (1).
HostTensor evaluate(const HostTensor& weight, const HostTensor& x,
                    const HostTensor& labels);

/// By what all gradients are multiplied so that their norm is `largest` at most.
double clip_factor(const HostTensors& gradients, double largest);

/// Returns gradients of W1 and W2, averaged over all micro-batches of all ranks.
HostTensors accumulate_gradients(const HostTensors& weights, const HostTensors& inputs,
                                 const HostTensors& targets);

}  // namespace one_device

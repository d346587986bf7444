#pragma once

#include <map>
#include <string>
#include <vector>

#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

// What one device makes of a batch: logits = W2 tanh(W1 x + b1) + b2 of each row, and the
// mean of -log softmax(logits)[target].

/// x (rows, features) and targets (rows), i32.
struct ClassifiedRows {
    HostTensor x;
    HostTensor targets;
};

/// W1 "hidden.weight" (hidden, features), b1 "hidden.bias" (hidden), W2 "output.weight"
/// (classes, hidden), b2 "output.bias" (classes); or their gradients.
using NetworkTensors = std::map<std::string, HostTensor>;

struct MeanLoss {
    double loss = 0;
    NetworkTensors gradients;
};

/// Over the rows of all parts together; zeros where there are none.
MeanLoss mean_loss(const NetworkTensors& network,
                   const std::vector<ClassifiedRows>& parts);

}  // namespace lockstep::lessons

#pragma once

#include <map>
#include <string>
#include <vector>

#include "lessons/grader/judge.hpp"
#include "src/core/host_tensor.hpp"

namespace lockstep::lessons {

// One device computes this of a batch, by the formula and on the host: linear layers, one
// after another, with tanh between them, make of each row of x its logits; a row's loss
// is -log softmax(logits)[target]. What students' ranks compute together is compared with
// it.

/// x (rows, features) and targets (rows), i32.
struct ClassifiedRows {
    HostTensor x;
    HostTensor targets;
};

/// Draws that many rows; the same for the same name, but others in another grading.
ClassifiedRows draw_rows(const Judge& judge, const std::string& name, std::int64_t rows,
                         std::int64_t features, std::int64_t classes);

/// Of each layer "NAME.weight" (out, in) and "NAME.bias" (out); or their gradients.
using NetworkTensors = std::map<std::string, HostTensor>;

struct MeanLoss {
    double loss = 0;
    NetworkTensors gradients;
};

/// Over the rows of all shards together; zeros if there are none. `layers` has the names
/// of the layers from first to last.
MeanLoss mean_loss(const std::vector<std::string>& layers, const NetworkTensors& network,
                   const std::vector<ClassifiedRows>& shards);

/// The parameters with which one device that has all rows ends, and its losses, each with
/// the parameters that the step began with.
struct Trained {
    NetworkTensors network;
    std::vector<double> losses;
};

/// Takes `steps` steps of SGD without momentum, each with all rows.
Trained train_alone(const std::vector<std::string>& layers, NetworkTensors network,
                    const std::vector<ClassifiedRows>& shards, int steps,
                    double learning_rate);

}  // namespace lockstep::lessons

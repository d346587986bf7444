#pragma once

#include <functional>
#include <string>
#include <vector>

#include "lessons/assignments/classifier.hpp"
#include "lessons/assignments/suspects.hpp"

namespace lockstep::lessons {

/// Steps of SGD without momentum, each by the gradient of the mean over all ranks' rows.
struct SgdTraining {
    std::vector<std::string> layers;
    NetworkTensors network;  ///< that all ranks begin with
    std::vector<ClassifiedRows> shards;
    int steps = 0;
    double learning_rate = 0;

    /// One device that has all rows ends so.
    Trained alone() const;
    /// The network after steps, each by what the function makes of the network before it.
    NetworkTensors by(
        int count,
        const std::function<NetworkTensors(const NetworkTensors&)>& gradient) const;
};

/// Returns what is said of a parameter that all ranks should have alike behind training,
/// if a mistake made just that of it.
std::string suspected_training(const SgdTraining& training, const std::string& parameter,
                               const OfRanks& left);

}  // namespace lockstep::lessons

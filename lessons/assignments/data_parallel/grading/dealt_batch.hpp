#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lessons/assignments/classifier.hpp"
#include "lessons/assignments/sgd_training.hpp"
#include "lessons/assignments/suspects.hpp"

namespace lockstep::lessons::data_parallel {

/// One device's network: logits = W2 tanh(W1 x + b1) + b2 of each row.
inline const std::vector<std::string> kLayers{"hidden", "output"};

// Steps of training, and by how much.
inline constexpr int kSteps = 3;
inline constexpr std::int64_t kThousandths = 250;
inline constexpr double kLearningRate = kThousandths / 1000.0;

/// Says how the rows of a batch are dealt out, and to which network.
struct DealtBatch {
    std::vector<std::int64_t> shards;  ///< rows of each rank
    std::int64_t most_rows = 0;        ///< of a micro-batch
    std::int64_t hidden = 9;
    std::int64_t features = 6;
    std::int64_t classes = 4;
    std::int64_t held = 0;  ///< each element of the gradients, before the call

    std::size_t ranks() const { return shards.size(); }
    std::int64_t rows() const;
    /// "3 ranks with 5, 0, 9 rows, 4 at once"
    std::string name() const;
    /// Returns the number of parameters.
    std::int64_t elements() const {
        return (features + 1) * hidden + (hidden + 1) * classes;
    }
};

/// Loss, "loss" (1), and gradients of a mean over some rows.
NetworkTensors mean_of(const NetworkTensors& network,
                       const std::vector<ClassifiedRows>& shards);

/// A batch's network and rows, for what mistakes make of them.
class Mistakes {
  public:
    Mistakes(const Judge& judge, const DealtBatch& batch);

    /// Return what is said of the loss or a gradient that shard_gradient or
    /// batch_gradient left, and of the losses of training.

    std::string in_shard(const std::string& tensor, const OfRanks& left) const;
    std::string in_batch(const std::string& tensor, const OfRanks& left) const;
    std::string in_losses(const OfRanks& left) const;

    const SgdTraining& training() const { return training_; }
    const NetworkTensors& network() const { return training_.network; }
    const std::vector<ClassifiedRows>& shards() const { return training_.shards; }

  private:
    std::size_t ranks() const { return batch_.ranks(); }
    double share(std::size_t rank) const;

    DealtBatch batch_;
    SgdTraining training_;
};

}  // namespace lockstep::lessons::data_parallel

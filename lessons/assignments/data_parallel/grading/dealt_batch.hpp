#pragma once

#include "lessons/assignments/data_parallel/grading/one_device.hpp"
#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

// Steps of training, and by how much.
inline constexpr int kSteps = 3;
inline constexpr std::int64_t kThousandths = 250;
inline constexpr double kLearningRate = kThousandths / 1000.0;

/// How the rows of a batch are dealt out, and to which network.
struct DealtBatch {
    std::vector<std::int64_t> shards;  ///< rows of each rank
    std::int64_t most_rows = 0;        ///< of a micro-batch
    std::int64_t hidden = 9;
    std::int64_t features = 6;
    std::int64_t classes = 4;

    std::size_t ranks() const { return shards.size(); }
    std::int64_t rows() const;
    std::string name() const;
};

/// Of the network, drawn.
NetworkTensors initial_network(const Judge& judge, const DealtBatch& batch);
/// One part a rank, drawn.
std::vector<ClassifiedRows> dealt_rows(const Judge& judge, const DealtBatch& batch);

/// Runs the task with the batch.
const TaskResult& run_task(Judge& judge, const std::string& task,
                           const DealtBatch& batch);

}  // namespace lockstep::lessons

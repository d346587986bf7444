#pragma once

#include "lessons/01_gradient_accumulation/training.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// Rows to fit a linear layer to.
struct Regression {
    HostTensor inputs;   ///< (rows, features)
    HostTensor targets;  ///< (rows, outputs)
    std::int64_t rows() const { return inputs.shape()[0]; }
};

/// The notes' shape, 10 features and 5 outputs, with random values: targets
/// are a fixed linear map of the inputs plus noise.
Regression generate_regression(std::int64_t rows, DType dtype,
                               std::uint64_t seed);

/// The table of --data: its last `targets` columns are the targets.
Regression load_regression(const std::filesystem::path& path,
                           std::int64_t targets, DType dtype);

/// What --data holds, or generated rows.
Regression regression_of(const LessonOptions& options, std::int64_t rows);

/// A run of rows, and the weight of its loss.
struct Share {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    double weight = 1;
};

/// Rows dealt out evenly to `parts`; each weighs total_weight times its
/// share of the rows.
std::vector<Share> even_shares(std::int64_t rows, int parts,
                               double total_weight);

struct LinearSettings {
    int epochs = 100;  ///< one step each
    double learning_rate = 0.01;
    std::uint64_t seed = 0;
};

/// One linear layer trained by SGD on the shares that `shares_of(rank)`
/// names.
Training linear_training(
    const Regression& data, const LinearSettings& settings,
    std::function<std::vector<Share>(int rank)> shares_of);

}  // namespace lockstep::lessons

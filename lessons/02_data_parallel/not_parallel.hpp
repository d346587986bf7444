#pragma once

#include <string>
#include <vector>

namespace lockstep::lessons {

/// Programs in which a row's gradient depends on more than the row and the weights, so
/// that the gradients of a batch's shares do not add up to the batch's gradient. Each
/// program has a usual mistake and a cure:
inline const std::vector<std::string> kNotParallel{
    "batch_statistics",  // batch norm over the rank's rows, or over all rows
    "mean_loss",         // a mean of the ranks' means, or equal weights for all rows
    "dropout",           // the same mask on all ranks, or each rank's part of one mask
    "clipping",          // each rank's norm before the sum, or the norm of the sum
};

/// The result of training on n ranks, compared with one device that has the same batches.
struct NotParallelOutcome {
    /// The largest difference of a kept tensor, relative to the tensor's largest value.
    double mistaken = 0;
    double cured = 0;
    /// The checker's finding in the mistaken program under `--check full`: a class, such
    /// as "F28", the title of a diagnosis without a class, or nothing.
    std::string found;
    /// The checker's finding if it also gets the program of one device.
    std::string found_beside_one_device;
    /// Both findings, one after the other, in the cured program; empty if there are none.
    std::string found_in_cure;
};

/// Trains a small model on virtual devices for some steps, in f64. Its layers are Linear,
/// Tanh, Linear; after the first, "batch_statistics" has a batch norm and "dropout" a
/// dropout. Rank i has 2 (i + 1) rows of each batch.
NotParallelOutcome try_not_parallel(const std::string& what, int ranks);

}  // namespace lockstep::lessons

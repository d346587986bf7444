#pragma once

#include <string>
#include <vector>

namespace lockstep::lessons {

/// What a row's gradient depends on besides the row and the weights, so that shares of a
/// batch do not add up to the batch by themselves. Each is a program with its usual
/// mistake and its cure:
inline const std::vector<std::string> kNotParallel{
    "batch_statistics",  // batch norm: of the rank's rows, or of all
    "mean_loss",         // a mean of the ranks' means, or rows that count alike
    "dropout",           // one mask for all ranks, or the batch's, dealt out
    "clipping",          // by each rank's norm before the sum, or by the sum's norm
};

/// What came of training on n ranks, beside one device with the same batches.
struct NotParallelOutcome {
    /// The largest difference of anything that was kept, relative to its largest value.
    double mistaken = 0;
    double cured = 0;
    /// The checker says this of the mistaken program under `--check full`: a class,
    /// "F28"; the title of a diagnosis without a class; or nothing.
    std::string found;
    /// It says this if it is given the program of one device, too.
    std::string found_beside_one_device;
    /// It says this of the cured program, both ways: nothing.
    std::string found_in_cure;
};

/// Trains a small model on virtual devices for some steps, in f64: Linear, batch norm or
/// dropout in the programs of these, Tanh, Linear. Of each batch, rank i has 2 (i + 1)
/// rows.
NotParallelOutcome try_not_parallel(const std::string& what, int ranks);

}  // namespace lockstep::lessons

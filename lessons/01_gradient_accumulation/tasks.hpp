#pragma once

#include "lessons/01_gradient_accumulation/training.hpp"
#include "lessons/runner/input_files.hpp"
#include "lessons/runner/lesson.hpp"
#include "src/nn/char_model.hpp"

namespace lockstep::lessons {

/// Rows to fit a linear layer to.
struct Regression {
    HostTensor inputs;   ///< (rows, features)
    HostTensor targets;  ///< (rows, outputs)
    std::int64_t rows() const { return inputs.shape()[0]; }
};

/// The notes' shape, 10 features and 5 outputs, with random values: targets
/// are a fixed linear map of the inputs plus noise.
Regression generate_regression(std::int64_t rows, DType dtype, std::uint64_t seed);

/// The table of --data: its last `targets` columns are the targets.
Regression load_regression(const std::filesystem::path& path, std::int64_t targets,
                           DType dtype);

/// Returns the rows of --data, or generated ones.
Regression regression_of(const LessonOptions& options, std::int64_t rows);

/// A run of rows, and the weight of its loss.
struct Share {
    std::int64_t begin = 0;
    std::int64_t count = 0;
    double weight = 1;
};

/// Rows dealt out evenly to `parts`; each weighs total_weight times its
/// share of the rows.
std::vector<Share> even_shares(std::int64_t rows, int parts, double total_weight);

struct LinearSettings {
    int epochs = 100;  ///< one step each
    double learning_rate = 0.01;
    std::uint64_t seed = 0;

    SgdOptions optimizer() const { return {learning_rate, 0, 0}; }
};

/// One linear layer trained by SGD on the shares that `shares_of(rank)` names.
Training linear_training(const Regression& data, const LinearSettings& settings,
                         std::function<std::vector<Share>(int rank)> shares_of);

/// A text, a model of its characters, and how it is trained.
struct LanguageTask {
    Text text;
    CharModelSizes sizes;
    int steps = 0;
    std::int64_t micro_batch_rows = 0;
    int micro_batches = 0;  ///< a step's
    double learning_rate = 0;
    std::vector<std::int32_t> positions;  ///< of each step's rows, (steps, all rows)

    std::int64_t rows_per_step() const { return micro_batches * micro_batch_rows; }
    SgdOptions optimizer() const { return {learning_rate, 0.9, 0}; }
};

/// The text of --text or the lesson's own, cut as the options ask.
std::shared_ptr<const LanguageTask> make_language_task(const LessonOptions& options,
                                                       int micro_batches);

/// Training in which rank r takes micro-batches [first(r), first(r) +
/// count) of each step.
Training language_training(std::shared_ptr<const LanguageTask> task,
                           const LessonOptions& options,
                           std::function<int(int rank)> first, int count);

/// Adds what another program needs to train the same: "language_model/ids"
/// (characters), "/vocabulary" (V code points), "/positions" (steps, rows
/// of a step), and the initial parameters.
void record_language_inputs(Record& record, const LanguageTask& task);

}  // namespace lockstep::lessons

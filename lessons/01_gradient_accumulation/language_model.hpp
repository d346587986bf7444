#pragma once

#include "lessons/01_gradient_accumulation/training.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/runner/load_text.hpp"
#include "src/nn/char_model.hpp"

namespace lockstep::lessons {

/// A text, a model of its characters, and how it is trained.
struct LanguageTask {
    Text text;
    CharModelSizes sizes;
    int steps = 0;
    std::int64_t micro_batch_rows = 0;
    int micro_batches = 0;  ///< a step's
    double learning_rate = 0;
    std::vector<std::int32_t>
        positions;  ///< of each step's rows, (steps, all rows)

    std::int64_t rows_per_step() const {
        return micro_batches * micro_batch_rows;
    }
};

/// The text of --text or the lesson's own, cut as the options ask.
std::shared_ptr<const LanguageTask> make_language_task(
    const LessonOptions& options, int micro_batches);

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

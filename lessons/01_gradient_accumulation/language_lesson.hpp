#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lessons/01_gradient_accumulation/training.hpp"
#include "lessons/runner/input_files.hpp"
#include "lessons/runner/lesson.hpp"
#include "src/nn/char_model.hpp"

namespace lockstep::lessons {

/// A text, a model of its characters, and how it is trained.
struct LanguageTask {
    Text text;
    CharModelSizes sizes;
    int steps = 0;
    std::int64_t micro_batch_rows = 0;
    int micro_batches = 0;  ///< in a step
    double learning_rate = 0;
    std::vector<std::int32_t> positions;  ///< of targets: (steps, rows of a step)

    std::int64_t rows_per_step() const { return micro_batches * micro_batch_rows; }
    SgdOptions optimizer() const { return {learning_rate, 0.9, 0}; }
};

/// Makes the task from the text of --text, or from the lesson's own text.
std::shared_ptr<const LanguageTask> make_language_task(const LessonOptions& options,
                                                       int micro_batches);

/// Returns the training in which rank r computes micro-batches [first(r),
/// first(r) + count) of each step.
Training language_training(std::shared_ptr<const LanguageTask> task,
                           const LessonOptions& options,
                           std::function<int(int rank)> first, int count);

/// Adds what another program needs to repeat the training: "language_model/ids"
/// (characters), "/vocabulary" (V code points), "/positions" (steps, rows of a step).
/// record_initial() adds the initial parameters.
void record_language_inputs(Record& record, const LanguageTask& task);

/// A lesson that trains the language model in several ways on all devices, and compares
/// each way with accumulation on one device.
class LanguageLesson : public Lesson {
  public:
    /// Throws UsageError if the lesson cannot run with these options.
    LanguageLesson(const LessonOptions& options, Record& record);

    int parts() const { return parts_; }  ///< of a batch: one micro-batch for each device
    const std::shared_ptr<const LanguageTask>& language() const { return language_; }

    /// Trains on all devices, and passes the run to check_against_one().
    void train_and_check(Findings& found, const std::string& variant,
                         const MakeStrategy& strategy);
    /// Records the run as `variant`, and compares its parameters with one device's.
    void check_against_one(Findings& found, const std::string& variant,
                           const RunReport& report);

  private:
    const RunReport& alone();

    int parts_;
    std::shared_ptr<const LanguageTask> language_;
    std::optional<RunReport> alone_;
};

/// Default values of the language model's settings.
struct LanguageDefaults {
    std::int64_t steps = 50;
    std::int64_t rows = 16;
    std::int64_t width = 8;
    std::int64_t hidden = 32;
};
std::vector<Setting> language_settings(const LanguageDefaults& defaults = {});

}  // namespace lockstep::lessons

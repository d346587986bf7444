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

/// A lesson that trains the language model in several ways on all devices, and holds each
/// against accumulation on one.
class LanguageLesson : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    LanguageLesson(const LessonOptions& options, Record& record);

    int parts() const { return parts_; }  ///< devices, each with a micro-batch
    const std::shared_ptr<const LanguageTask>& language() const { return language_; }

    /// Trains on all devices, and checks that.
    void train_and_check(Findings& found, const std::string& variant,
                         const MakeStrategy& strategy);
    /// Records the run as `variant`, and checks its parameters against one device's.
    void check_against_one(Findings& found, const std::string& variant,
                           const RunReport& report);

  private:
    const RunReport& alone();

    int parts_;
    std::shared_ptr<const LanguageTask> language_;
    std::optional<RunReport> alone_;
};

/// The values that settings of the language model have unless one sets them.
struct LanguageDefaults {
    std::int64_t steps = 50;
    std::int64_t rows = 16;
    std::int64_t width = 8;
    std::int64_t hidden = 32;
};
std::vector<Setting> language_settings(const LanguageDefaults& defaults = {});

}  // namespace lockstep::lessons

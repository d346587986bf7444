#pragma once

#include "lessons/01_gradient_accumulation/language_lesson.hpp"

namespace lockstep::lessons {

/// The lesson's experiments.
class DataParallel final : public LanguageLesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    DataParallel(const LessonOptions& options, Record& record)
        : LanguageLesson(options, record) {}

    std::vector<Experiment> experiments() override;

  private:
    void server(Findings& found);
    void servers(Findings& found);
    void deal_out(Findings& found);
    void one_process(Findings& found);
    void buckets(Findings& found);
    void overlap(Findings& found);
    void compress(Findings& found);
    void stragglers(Findings& found);
    void not_parallel(Findings& found);
    void compare_both(Findings& found);
    void scaling(Findings& found);
};

/// The lesson `data-parallel`: who adds the gradients up, and when.
LessonEntry data_parallel_lesson();

}  // namespace lockstep::lessons

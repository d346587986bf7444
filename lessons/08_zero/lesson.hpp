#pragma once

#include "lessons/01_gradient_accumulation/language_lesson.hpp"

namespace lockstep::lessons {

/// The lesson's experiments.
class Zero final : public LanguageLesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    Zero(const LessonOptions& options, Record& record)
        : LanguageLesson(options, record) {}

    std::vector<Experiment> experiments() override;

  private:
    void bytes(Findings& found);
    void stage_1(Findings& found);
    void stage_2(Findings& found);
    void stage_3(Findings& found);
    void prefetch(Findings& found);
    void price(Findings& found);
    void host(Findings& found);
    void fits(Findings& found);
    void activations(Findings& found);
};

/// The lesson `zero`: state, gradients and parameters that replicas share out.
LessonEntry zero_lesson();

}  // namespace lockstep::lessons

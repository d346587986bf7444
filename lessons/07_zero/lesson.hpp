#pragma once

#include <memory>

#include "lessons/02_data_parallel/forms.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson's experiments.
class Zero final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    Zero(const LessonOptions& options, Record& record);

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

    /// Trains the language model on all devices, records it as `variant`, and checks its
    /// parameters against accumulation on one device.
    void train_and_check(Findings& found, const std::string& variant,
                         const MakeStrategy& strategy);
    const RunReport& alone();

    int parts_;
    std::shared_ptr<const LanguageTask> language_;
    std::optional<RunReport> alone_;
};

/// The lesson `zero`: state, gradients and parameters that replicas share out.
LessonEntry zero_lesson();

}  // namespace lockstep::lessons

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lessons/01_gradient_accumulation/tasks.hpp"
#include "lessons/01_gradient_accumulation/training.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

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

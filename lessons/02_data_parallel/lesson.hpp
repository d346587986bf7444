#pragma once

#include <memory>

#include "lessons/02_data_parallel/forms.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson's experiments.
class DataParallel final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    DataParallel(const LessonOptions& options, Record& record);

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

    /// Stored one behind the other: forward and backward through three layers, the sum of
    /// devices' gradients, the parameter.
    int stores() const { return 12 + parts_; }
    /// Trains the language model on all devices, records it as `variant`, and checks its
    /// parameters and losses against accumulation on one device.
    void train_and_check(Findings& found, const std::string& variant,
                         const MakeStrategy& strategy);
    void check_against_one(Findings& found, const std::string& variant,
                           const RunReport& report);
    const RunReport& alone();

    int parts_;
    std::shared_ptr<const LanguageTask> language_;
    std::optional<RunReport> alone_;
};

/// The lesson `data-parallel`: who adds the gradients up, and when.
LessonEntry data_parallel_lesson();

}  // namespace lockstep::lessons

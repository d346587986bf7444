#pragma once

#include <memory>
#include <vector>

#include "lessons/01_gradient_accumulation/tasks.hpp"
#include "lessons/01_gradient_accumulation/training.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/runner/rounding.hpp"

namespace lockstep::lessons {

/// The lesson's experiments, and what later ones need of earlier ones.
class GradientAccumulation final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    GradientAccumulation(const LessonOptions& options, Record& record);

    std::vector<Experiment> experiments() override;

  private:
    void accumulate(Findings& found);
    /// In bf16: what training comes to if updates are not kept in f32.
    void without_masters(Findings& found);
    void distribute(Findings& found);
    void average(Findings& found);
    void average_unequal(Findings& found, const Regression& data);
    void ring(Findings& found);
    void read_text(Findings& found);
    void measure(Findings& found);
    void predict(Findings& found);

    /// Stored one behind the other: the prediction, its error, the gradient after each
    /// micro-batch and after each addition over devices, the parameter.
    int stores() const { return 2 * parts_ + 3; }
    double bound() const {
        return RoundingBound{1e-5, 1e-13}.of(options().dtype, stores());
    }
    RunReport train_alone(const Regression& data, const std::vector<Share>& shares);
    RunReport train_together(const Regression& data, const std::vector<Share>& shares,
                             double rate_factor = 1,
                             const LessonOptions* other_options = nullptr);
    /// As train_together, where the sum of the weighted gradients is not
    /// their mean on purpose.
    RunReport train_wrongly(const Regression& data, const std::vector<Share>& shares);

    int parts_;
    LinearSettings linear_;
    Regression data_;
    std::shared_ptr<const LanguageTask> language_;
    RunReport accumulation_;
};

/// The lesson `gradient-accumulation`: gradient accumulation is data parallelism.
LessonEntry gradient_accumulation_lesson();

}  // namespace lockstep::lessons

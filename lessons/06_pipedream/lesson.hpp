#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "lessons/06_pipedream/endless_training.hpp"
#include "lessons/runner/gpt_task.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson's experiments, and what later ones need of earlier ones.
class PipedreamLesson final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    PipedreamLesson(const LessonOptions& options, Record& record);

    std::vector<Experiment> experiments() override;

  private:
    /// A run of the GPT, and what the tables show of it.
    struct Trained {
        std::string name;  ///< the page's
        WeightRule rule;
        std::vector<double> losses;  ///< by micro-batch
        Picoseconds time = 0;
    };

    void flush(Findings& found);
    void endless(Findings& found);
    void versions(Findings& found);
    void stale(Findings& found);
    void stash(Findings& found);
    void buffers(Findings& found);
    void delay(Findings& found);
    void train(Findings& found);
    void breaks(Findings& found);

    WeightRule rule(const std::string& schedule, int per_update = 1) const {
        return {schedule, ranks_, per_update};
    }
    /// Trains the stack where forward takes a second and each half of backward another.
    RunReport run_stack(const WeightRule& rule, int micro_batches, bool trace = false);
    /// The largest difference of a weight from one device's that keeps all versions.
    double gap_to_one_device(const WeightRule& rule, int micro_batches,
                             const RunReport& report);
    /// Gives the memory that copies of a real model's weights take.
    void give_models(Findings& found) const;
    /// Returns the checker's words on a stack whose pipeline keeps no old weights.
    std::string diagnosis_without_stash() const;

    int micro_batches() const { return task_->steps * per_update_; }
    int half_of_them() const { return std::max(1, task_->steps / 2) * per_update_; }
    /// Gives a loss, or says that training broke: it is no number, or twice that of a
    /// model that knows nothing of the text.
    bool give_loss(Findings& row, const std::string& name, double loss) const;
    const Trained& run_called(const std::string& name) const;
    /// Trains the GPT, and leaves it in the record under the name.
    Trained train_by(const std::string& name, const WeightRule& rule);
    /// Holds its first losses against those of one device.
    double first_losses_gap(const Trained& trained) const;
    void give_curves(Findings& found) const;
    void give_times(Findings& found) const;
    /// Gives the time of a micro-batch in the long run, for longer sequences.
    void give_paces(Findings& found) const;
    void give_rates(Findings& found);
    void give_late(Findings& found) const;
    void give_deep(Findings& found);
    /// The mean loss at the end of a run of so many micro-batches.
    double end_of_run(const WeightRule& rule, double learning_rate, int micro_batches);

    int ranks_;
    int per_update_;  ///< micro-batches of a step, where there are steps
    std::shared_ptr<const GptTask> task_;
    std::vector<Trained> trained_;
};

/// The lesson `pipedream`: a pipeline that does not stop, whose weights change while
/// micro-batches are under way.
LessonEntry pipedream_lesson();

}  // namespace lockstep::lessons

#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lessons/05_pipeline_1f1b/stack.hpp"
#include "lessons/runner/gpt_task.hpp"
#include "lessons/runner/lesson.hpp"
#include "src/pipeline/generators.hpp"

namespace lockstep::lessons {

/// The lesson's experiments, and what later ones need of earlier ones.
class PipelineLesson final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    PipelineLesson(const LessonOptions& options, Record& record);

    std::vector<Experiment> experiments() override;

  private:
    void staircase(Findings& found);
    void gpipe(Findings& found);
    void memory(Findings& found);
    void steady_state(Findings& found);
    void bubble(Findings& found);
    void interleaved(Findings& found);
    void halves(Findings& found);
    void published(Findings& found);
    void deadlock(Findings& found);
    void train(Findings& found);

    /// A schedule of this lesson's stages; of its micro-batches, unless told otherwise.
    Schedule schedule(const std::string& name, int chunks = 1,
                      int micro_batches = 0) const;
    /// Runs it over the stack where forward takes a second and each half of
    /// backward another, unless that was done under this name before.
    const RunReport& run(const Schedule& schedule, const std::string& name);
    /// Gives what each stage holds, against what one micro-batch and two cost.
    void give_ledger(Findings& found, const Schedule& turns);

    /// Trains by one schedule, and leaves it in the record.
    std::vector<double> train_by(Findings& found, const Schedule& schedule, int replicas,
                                 const std::string& variant);
    /// Compares a run with one device, bit by bit if that is possible.
    void check_bits(Findings& row, const RunReport& report, int replicas) const;
    /// Gives time and memory of the runs of training, the last in the record.
    void give_costs(Findings& found, const std::vector<std::string>& names);

    int ranks_;
    int micro_batches_;
    std::shared_ptr<const GptTask> task_;
    std::map<std::string, RunReport> runs_;  ///< of the stack
    RunReport alone_;                        ///< of the GPT, on one device
};

/// The lesson `pipeline-1f1b`: a model whose layers lie on several devices,
/// and the order in which these work.
LessonEntry pipeline_1f1b_lesson();

}  // namespace lockstep::lessons

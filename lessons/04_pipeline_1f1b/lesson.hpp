#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lessons/04_pipeline_1f1b/stack.hpp"
#include "lessons/runner/gpt_task.hpp"
#include "lessons/runner/lesson.hpp"
#include "src/pipeline/generators.hpp"

namespace lockstep::lessons {

/// The lesson's steps. 1 to 7 are in lesson.cpp, 8 in training_step.cpp.
class PipelineLesson final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    PipelineLesson(const LessonOptions& options, Record& record);

    std::vector<Step> steps() override;

  private:
    void staircase(Page& page);
    void gpipe(Page& page);
    void memory(Page& page);
    void steady_state(Page& page);
    void bubble(Page& page);
    void split(Page& page);
    void deadlock(Page& page);
    void train(Page& page);

    /// A schedule of this lesson's stages; of its micro-batches, unless told otherwise.
    Schedule schedule(const std::string& name, int chunks = 1,
                      int micro_batches = 0) const;
    /// Runs it over the stack where forward takes a second and each half of
    /// backward another, unless that was done under this name before.
    const RunReport& run(const Schedule& schedule, const std::string& name);
    /// Draws it, and holds the virtual clock's time against the formula's.
    void show(Page& page, const Schedule& schedule);
    void check_clock(Page& page, const RunReport& report, const std::string& formula,
                     double seconds);

    void show_ledger(Page& page, const Schedule& turns);
    void show_interleaved(Page& page);
    void show_split_backward(Page& page);
    void show_published(Page& page);
    /// Compares a run of step 8 with one device, bit by bit if that is possible.
    void check_bits(Page& page, const RunReport& report, int replicas,
                    const std::string& variant);
    /// Trains by one schedule, and leaves it in the record.
    std::vector<double> train_by(Page& page, const Schedule& schedule, int replicas,
                                 const std::string& variant);

    void show_interleaved_pace(Page& page);
    void show_costs(Page& page, const std::vector<std::string>& names);

    int ranks_;
    int micro_batches_;
    std::shared_ptr<const GptTask> task_;
    std::map<std::string, RunReport> runs_;  ///< of steps 1 to 6
    RunReport alone_;                        ///< of step 8
};

/// The lesson `pipeline-1f1b`: a model whose layers lie on several devices,
/// and the order in which these work.
LessonEntry pipeline_1f1b_lesson();

}  // namespace lockstep::lessons

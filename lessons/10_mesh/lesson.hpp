#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lessons/10_mesh/mesh_training.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// The lesson's experiments.
class MeshLesson final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    MeshLesson(const LessonOptions& options, Record& record);

    std::vector<Experiment> experiments() override;

  private:
    void holds(Findings& found);
    void same(Findings& found);
    void dealt(Findings& found);
    void read_by_rank(Findings& found) const;
    void refuse_other_norms(Findings& found) const;
    void drop_by_place(Findings& found) const;
    void messages(Findings& found);
    void nodes(Findings& found);
    void prices(Findings& found);
    void tied(Findings& found);
    void restart(Findings& found);
    void resume(Findings& found, const GptTask& task,
                const std::filesystem::path& folder);
    void experts(Findings& found);
    void large(Findings& found);
    void choose(Findings& found);

    /// Returns what a device has of the model and of the batch, a line each: "heads 0–1".
    std::vector<std::string> share_of(int rank) const;
    /// Trains on a cluster of its own, shows its progress, and records it as `variant`.
    std::vector<double> train(const std::string& variant, const GptTask& task,
                              const MeshPlan* plan);
    /// What does not depend on the backend runs on virtual devices of this process.
    std::unique_ptr<Cluster> virtual_devices(int ranks) const;

    MeshSizes sizes_;
    std::shared_ptr<const GptTask> task_;
    std::unique_ptr<const MeshPlan> plan_;
};

/// The lesson `mesh`: every kind of parallelism at once.
LessonEntry mesh_lesson();

}  // namespace lockstep::lessons

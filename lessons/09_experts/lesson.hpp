#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lessons/09_experts/gpt_experts.hpp"
#include "lessons/runner/lesson.hpp"
#include "src/nn/gate.hpp"

namespace lockstep::lessons {

/// The lesson's experiments.
class ExpertsLesson final : public Lesson {
  public:
    /// Throws UsageError if the options ask for what cannot be.
    ExpertsLesson(const LessonOptions& options, Record& record);

    std::vector<Experiment> experiments() override;

  private:
    void sparse(Findings& found);
    void gate(Findings& found);
    void dispatch(Findings& found);
    void compare_layers(Findings& found);
    void waiting(Findings& found);
    void capacity(Findings& found);
    void balance(Findings& found);
    void bytes(Findings& found);
    void inside(Findings& found);
    void same(Findings& found);
    void nodes(Findings& found);

    std::vector<std::int64_t> gate_many(std::int64_t tokens, std::int64_t experts) const;
    void drop_in_a_layer(Findings& found);
    void layer_on_nodes(Findings& found, std::int64_t experts, std::int64_t chosen) const;
    /// Trains on a cluster of its own, shows its progress, and records it as `variant`.
    RunReport train(const std::string& variant, const GptTask& task,
                    const ExpertRun& run);

    int ranks_;
    std::shared_ptr<const GptTask> task_;
};

/// The lesson `experts`: a gate sends each token to few of many experts, which lie on
/// several devices.
LessonEntry experts_lesson();

}  // namespace lockstep::lessons

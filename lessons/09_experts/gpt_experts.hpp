#pragma once

#include <memory>

#include "lessons/runner/gpt_task.hpp"

namespace lockstep::lessons {

/// A GPT of experts whose sequences, experts and heads `ranks` devices can share out.
std::shared_ptr<const GptTask> make_experts_task(const LessonOptions& options, int ranks);

/// How devices share it out: `ep` have sequences and experts of their own, and each is a
/// tensor group of `tp`, which shares out layers and the columns of each expert.
struct ExpertRun {
    int ep = 1;
    int tp = 1;
    double bias_rate = 0;  ///< if experts are chosen by a bias

    int ranks() const { return ep * tp; }
};

/// Trains on `cluster`, of run.ranks() devices. Leaves what train does, and in the
/// series "load" of rank 0, after each step, how many times as many copies as the mean
/// the busiest expert of any layer got.
RunReport train_gpt_experts(Cluster& cluster, const GptTask& task, const ExpertRun& run,
                            const Advance& advance = {});

}  // namespace lockstep::lessons

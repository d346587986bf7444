#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lessons/05_pipeline_1f1b/stack.hpp"
#include "lessons/06_pipedream/weight_rule.hpp"
#include "lessons/runner/gpt_task.hpp"
#include "src/pipeline/pipeline.hpp"

namespace lockstep::lessons {

/// A model in parts, one for each stage, and how it is trained by SGD.
struct PartedTraining {
    int parts = 0;
    std::function<std::unique_ptr<Module>(Device& device, int part)> make_part;
    /// Makes so many micro-batches, each with that weight in an update's mean.
    std::function<std::vector<MicroBatch>(Device& device, int count, double weight)>
        make_batches;
    PartBoundary boundary;
    Loss loss = mean_squared_error;
    SgdOptions optimizer;

    /// How much the average of steps, by which a part's weights are estimated, keeps of
    /// itself at each step: D^(1/updates ahead or behind), as in PipeMare (Yang et al.
    /// 2021, 1910.05124, section 3.2), with D = 0.1. See Pipeline::estimate_by.
    double decay(int part) const;
};

/// The stack of the lesson before, a part of two layers on each stage.
PartedTraining stack_training(const StackOptions& options, int stages);

/// The task's GPT, cut into parts whose products cost about the same. Micro-batch i is
/// the task's sequence i, of which there must be as many. The task must outlive it.
PartedTraining gpt_training(const GptTask& task, int stages);

/// Returns the schedule that the rule is for, with so many micro-batches in all.
Schedule schedule_of(const WeightRule& rule, int micro_batches);

/// Trains by the schedule of the rule, without a stop. Each rank keeps its part's
/// parameters after the last update, and the last one the loss of each micro-batch in the
/// series "loss".
RunReport train_endless(Cluster& cluster, const WeightRule& rule,
                        const PartedTraining& training, int micro_batches,
                        const Advance& advance = {});

/// Trains all parts on one device, which keeps every version of the weights and reads
/// those that the rule says. Keeps the same, and the length of each part's gradient after
/// the first micro-batch in the series "norm".
RunReport train_alone(Cluster& cluster, const WeightRule& rule,
                      const PartedTraining& training, int micro_batches);

}  // namespace lockstep::lessons

#pragma once

#include <memory>

#include "lessons/runner/gpt_task.hpp"
#include "src/pipeline/pipeline_gpt.hpp"

namespace lockstep::lessons {

/// A GPT that `ranks` stages of two chunks can share out; a batch that can
/// be cut into the micro-batches.
std::shared_ptr<const GptTask> make_pipeline_gpt_task(const LessonOptions& options,
                                                      int ranks, int micro_batches);

/// Trains on `cluster`, of the schedule's stages times replicas, each of which has so
/// many micro-batches. Leaves what train() does.
RunReport train_gpt_pipeline(Cluster& cluster, const PipelinePlan& plan,
                             const GptTask& task, int replicas,
                             const Advance& advance = {});

}  // namespace lockstep::lessons

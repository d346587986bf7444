#pragma once

#include <memory>

#include "lessons/runner/gpt_task.hpp"
#include "src/pipeline/pipeline_gpt.hpp"

namespace lockstep::lessons {

/// A GPT that `ranks` stages of two chunks can share out; a batch that can
/// be cut into the micro-batches.
std::shared_ptr<const GptTask> make_pipeline_gpt_task(const LessonOptions& options,
                                                      int ranks, int micro_batches);

/// How a GPT is trained: a schedule's stages, times replicas that share out
/// the schedule's micro-batches.
struct GptTraining {
    const GptTask& task;
    DType dtype = DType::f32;
    std::uint64_t seed = 1;
    int replicas = 1;
};

/// Trains on `cluster`, of the schedule's stages times replicas. Each rank keeps its
/// parameters after the last step under their names, before the first under
/// "initial/NAME", the first step's gradients under "grad/NAME"; the last stage its share
/// of the losses in the series "loss".
RunReport train_gpt_pipeline(Cluster& cluster, const PipelinePlan& plan,
                             const GptTraining& training, const Advance& advance = {});

}  // namespace lockstep::lessons

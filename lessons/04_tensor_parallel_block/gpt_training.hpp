#pragma once

#include <memory>

#include "lessons/runner/gpt_task.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep::lessons {

/// Outside of tensor-parallel regions, devices hold all tokens, or each its own.
enum class Regions { replicated, sequence_parallel };

std::unique_ptr<TensorParallel> make_regions(Regions kind, Device& device,
                                             Communicator& group);

/// Sizes that `ranks` devices share out, unless the options say others; the
/// text of --text, or the one that lessons share.
std::shared_ptr<const GptTask> make_shared_gpt_task(const LessonOptions& options,
                                                    int ranks);

/// One GPT on every device, its weights shared out if there are several.
/// Leaves what train() does; every rank has all losses.
RunReport train_gpt(Cluster& cluster, const GptTask& task, Regions regions,
                    const Advance& advance = {});

}  // namespace lockstep::lessons

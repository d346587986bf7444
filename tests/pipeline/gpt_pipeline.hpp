// A GPT trained on one device, and on a pipeline's stages.
#pragma once

#include "sim/cluster.hpp"
#include "src/nn/gpt.hpp"
#include "src/pipeline/generators.hpp"
#include "tests/alike.hpp"

namespace lockstep::test {

struct GptTask {
    GptSizes sizes;
    std::int64_t length = 5;
    std::int64_t batch = 2;  ///< sequences of a micro-batch
    int micro_batches = 4;   ///< of all replicas together
    int steps = 3;
    DType dtype = DType::f64;

    // Mistakes.
    bool forget_tie = false;
    bool forget_replicas = false;
    sim::CheckLevel check = sim::check_level_asked();
    bool correct() const { return !forget_tie && !forget_replicas; }
};

/// Eight layers, so that up to eight parts have one each.
GptTask small_gpt(bool tied = false);

// Each keeps what train() does: losses, the first step's gradients, values.

/// One device, one micro-batch after another.
Outcome train_alone(const GptTask& task);

/// The schedule's stages, times replicas that share out the micro-batches. Replicas, and
/// copies of a tied table, have to have the same bits, unless there is a mistake.
Outcome train_pipeline(const GptTask& task, const Schedule& schedule, int replicas = 1);

}  // namespace lockstep::test

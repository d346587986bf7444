#pragma once

#include <memory>
#include <optional>

#include "lessons/runner/gpt_task.hpp"
#include "src/parallel/context_parallel.hpp"

namespace lockstep::lessons {

/// A GPT whose sequences `ranks` devices can share out in any order, and
/// whose heads if the method asks for that.
std::shared_ptr<const GptTask> make_context_gpt_task(const LessonOptions& options,
                                                     int ranks, ContextMethod method);

/// One device that has all tokens runs CoreAttention, which holds all
/// weights, or FlashAttention. Several devices run the one that they share.
enum class AttentionKind { core, flash, shared };

/// How devices share out a step's tokens: replicas take different
/// sequences, parts different tokens of the same.
struct ContextRun {
    int replicas = 1;
    int parts = 1;
    ContextMethod method = ContextMethod::ring_attention;
    TokenOrder order = TokenOrder::contiguous;
    AttentionKind attention = AttentionKind::shared;

    static ContextRun alone(AttentionKind attention) {
        ContextRun run;
        run.attention = attention;
        return run;
    }
    /// Two replicas of half as many parts each, if there are as many.
    static std::optional<ContextRun> mesh_of(int ranks);

    int ranks() const { return replicas * parts; }
};

/// Trains on `cluster`, of run.ranks() devices. Leaves what train() does.
RunReport train_gpt_context(Cluster& cluster, const GptTask& task, const ContextRun& run,
                            const Advance& advance = {});

/// The most that a device holds while it trains with that context, by the
/// ledger, with shapes only.
std::int64_t training_peak(const GptTask& task, const ContextRun& run,
                           std::int64_t context);

}  // namespace lockstep::lessons

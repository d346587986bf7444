#include "lessons/07_ring_self_attention/gpt_context.hpp"

#include <fmt/format.h>

#include "src/comm/mesh.hpp"
#include "src/core/require.hpp"
#include "src/nn/flash_attention.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep::lessons {

namespace {

GptSizes sizes_of(const LessonOptions& options, int ranks, bool shares_heads,
                  std::int64_t vocabulary) {
    GptSizes sizes;
    sizes.vocabulary = vocabulary;
    sizes.context =
        options.values.integer("context", least_multiple(std::int64_t{2} * ranks, 256));
    sizes.layers = options.values.integer("layers");
    BlockSizes& block = sizes.block;
    block.heads =
        options.values.integer("heads", least_multiple(shares_heads ? ranks : 1, 4));
    block.kv_heads = options.values.integer("kv_heads", block.heads);
    block.hidden = options.values.integer("hidden", 16 * block.heads);
    require_shared_out("context", sizes.context, std::int64_t{2} * ranks,
                       fmt::format("two stretches of each of {} ranks", ranks));
    require_shared_out("hidden", block.hidden, block.heads, "the heads");
    require(block.heads % block.kv_heads == 0,
            "--set kv_heads={}: each head of keys and values serves as many of the {} "
            "heads, so that it must divide {}",
            block.kv_heads, block.heads, block.heads);
    return sizes;
}

/// Says which tokens a rank has, and how it attends.
GptKit kit_of(const ContextRun& run, Communicator& cp) {
    GptKit kit;
    switch (run.attention) {
        case AttentionKind::core:
            break;
        case AttentionKind::flash:
            kit.core = [](Device& device, const AttentionSizes& sizes) {
                return std::make_unique<FlashAttention>(device, sizes);
            };
            break;
        case AttentionKind::shared:
            return context_parallel(kit, cp, run.method, run.order);
    }
    return kit;
}

}  // namespace

std::optional<ContextRun> ContextRun::mesh_of(int ranks) {
    if (ranks % 2 != 0 || ranks == 2) return std::nullopt;
    ContextRun mesh;
    mesh.replicas = 2;
    mesh.parts = ranks / 2;
    return mesh;
}

std::shared_ptr<const GptTask> make_context_gpt_task(const LessonOptions& options,
                                                     int ranks, ContextMethod method) {
    const bool shares_heads = method == ContextMethod::ulysses;
    auto task = make_gpt_task(
        options, options.values.integer("batch"), [&](std::int64_t vocabulary) {
            return sizes_of(options, ranks, shares_heads, vocabulary);
        });
    require(!ContextRun::mesh_of(ranks) || task->batch % 2 == 0,
            "--set batch={}: two replicas share it out, so that it must be even",
            task->batch);
    return task;
}

RunReport train_gpt_context(Cluster& cluster, const GptTask& task, const ContextRun& run,
                            const Advance& advance) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"dp", run.replicas}, {"cp", run.parts}});
        const GptKit kit = kit_of(run, mesh["cp"]);
        const auto gpt = make_gpt(task.init(device), task.sizes, kit);
        declare_replicas_of(rank.world(), *gpt);
        const std::int64_t sequences = task.batch / run.replicas;
        const auto batches = [&](int step) {
            // To the weights, a rank's tokens are a share of the batch.
            return std::vector{upload_tokens(device, task, step,
                                             mesh.coordinate("dp") * sequences, sequences,
                                             1.0 / rank.size(), kit.tokens)};
        };
        train_gpt(rank, *gpt, task, cross_entropy_loss, batches, advance);
    });
}

std::int64_t training_peak(const GptTask& task, const ContextRun& run,
                           std::int64_t context) {
    GptTask one = task;
    one.sizes.context = context;
    one.steps = 1;
    return train_gpt_context(*make_shapes_only_cluster(run.ranks()), one, run)
        .most_held();
}

}  // namespace lockstep::lessons

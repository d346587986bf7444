#include "lessons/05_ring_self_attention/gpt_context.hpp"

#include <fmt/format.h>

#include "src/comm/mesh.hpp"
#include "src/core/require.hpp"
#include "src/nn/flash_attention.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/data_parallel.hpp"

namespace lockstep::lessons {

namespace {

constexpr double kMomentum = 0.9;

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

/// This rank's tokens of its replica's sequences; zeros if there are shapes only.
MicroBatch own_tokens(Device& device, const GptTask& task, int step,
                      const TokenDeal& deal, std::int64_t first, std::int64_t count,
                      double weight) {
    if (!device.has_numbers()) {
        const HostTensor none({deal.share_of(task.length(), "the GPT"), count},
                              DType::i32);
        return {device.upload(none), device.upload(none), weight};
    }
    const HostTokens tokens = tokens_of(task, step, first, count);
    return {device.upload(dealt_rows(tokens.ids, deal)),
            device.upload(dealt_rows(tokens.next, deal)), weight};
}

/// Says which tokens a rank has, and how it attends.
SequencePart part_of(const ContextRun& run, Communicator& cp) {
    switch (run.attention) {
        case AttentionKind::core:
            return {};
        case AttentionKind::flash:
            return {{}, [](Device& device, const AttentionSizes& sizes) {
                        return std::make_unique<FlashAttention>(device, sizes);
                    }};
        case AttentionKind::shared:
            break;
    }
    return context_part(cp, run.method, run.order);
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

// lesson: context-training
RunReport train_gpt_context(Cluster& cluster, const GptTask& task, const ContextRun& run,
                            DType dtype, std::uint64_t seed, Progress* progress) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"dp", run.replicas}, {"cp", run.parts}});
        const SequencePart part = part_of(run, mesh["cp"]);
        const auto gpt = make_gpt({device, dtype, seed, ""}, task.sizes, part);
        declare_replicas_of(rank.world(), *gpt);
        const std::vector<Parameter*> parameters = gpt->parameters();
        Sgd optimizer(parameters, {task.learning_rate, kMomentum, 0});
        keep_parameters(rank, parameters, "initial/", &Parameter::value);
        const std::int64_t sequences = task.batch / run.replicas;
        for (int step = 0; step < task.steps; ++step) {
            // To the weights, a rank's tokens are a share of the batch.
            const MicroBatch mine = own_tokens(device, task, step, part.tokens,
                                               mesh.coordinate("dp") * sequences,
                                               sequences, 1.0 / rank.size());
            const Tensor loss = data_parallel_gradients(device, rank.world(), *gpt,
                                                        cross_entropy_loss, {&mine, 1});
            rank.keep_value("loss", device.peek(loss).at(0));
            if (step == 0)
                keep_parameters(rank, parameters, "grad/", &Parameter::gradient);
            const PhaseScope phase(device, Phase::update);
            optimizer.step();
            if (progress && rank.index() == 0) progress->advance(step + 1);
        }
        keep_parameters(rank, parameters, "", &Parameter::value);
    });
}
// lesson: end

std::int64_t training_peak(const GptTask& task, const ContextRun& run,
                           std::int64_t context, DType dtype) {
    GptTask one = task;
    one.sizes.context = context;
    one.steps = 1;
    return train_gpt_context(*make_shapes_only_cluster(run.ranks()), one, run, dtype, 0)
        .most_held();
}

}  // namespace lockstep::lessons

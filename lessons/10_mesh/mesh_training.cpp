#include "lessons/10_mesh/mesh_training.hpp"

#include <cmath>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/parallel/checkpoint.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep::lessons {

MeshSizes mesh_sizes(const LessonOptions& options) {
    MeshSizes sizes;
    // In the order in which they get a 2.
    const std::vector<std::pair<std::string, int*>> axes{
        {"tp", &sizes.tp}, {"pp", &sizes.pp}, {"dp", &sizes.dp}, {"cp", &sizes.cp}};
    std::vector<int*> free;
    for (const auto& [name, size] : axes)
        if (options.values.has(name))
            *size = static_cast<int>(options.values.integer(name));
        else
            free.push_back(size);
    const int ranks = options.ranks.value_or(16);
    int left = ranks % sizes.ranks() == 0 ? ranks / sizes.ranks() : 0;
    for (std::size_t turn = 0; left > 0 && left % 2 == 0 && !free.empty(); ++turn) {
        *free[turn % free.size()] *= 2;
        left /= 2;
    }
    if (left > 1 && !options.values.has("dp")) sizes.dp *= std::exchange(left, 1);
    std::vector<std::string> set;
    for (const auto& [name, size] : axes)
        if (options.values.has(name)) set.push_back(fmt::format("{}={}", name, *size));
    require(left == 1,
            "--set {}: the sizes that are set are expected to {} the {} ranks{}",
            fmt::join(set, ", "), free.empty() ? "multiply to" : "share out", ranks,
            options.gpus_hint());
    return sizes;
}

std::shared_ptr<const GptTask> make_mesh_task(const LessonOptions& options,
                                              const MeshSizes& sizes) {
    const std::int64_t micro_batches = std::int64_t{sizes.dp} * sizes.micro_batches();
    const std::int64_t batch =
        options.values.integer("batch", least_multiple(micro_batches, 8));
    require_shared_out("batch", batch, micro_batches,
                       fmt::format("{} micro-batches", micro_batches));
    const std::int64_t stretches = std::int64_t{2} * sizes.cp * sizes.tp;
    return make_gpt_task(options, batch, [&](std::int64_t vocabulary) {
        GptSizes gpt;
        gpt.vocabulary = vocabulary;
        gpt.context = options.values.integer("context", least_multiple(stretches, 32));
        gpt.layers = options.values.integer("layers", std::max(4, sizes.pp));
        gpt.tied = true;
        BlockSizes& block = gpt.block;
        block.kv_heads = least_multiple(sizes.tp, 2);
        block.heads = 2 * block.kv_heads;
        block.hidden = options.values.integer("hidden", 8 * block.heads);
        require_shared_out("context", gpt.context, stretches,
                           fmt::format("{} stretches, two of each of {} ranks of cp, cut "
                                       "by the {} of tp,",
                                       stretches, sizes.cp, sizes.tp));
        require_shared_out("hidden", block.hidden, block.heads,
                           fmt::format("{} heads", block.heads));
        return gpt;
    });
}

MeshOptions mesh_options(std::vector<MeshShape::Axis> axes, int micro_batches) {
    MeshOptions options;
    options.axes = std::move(axes);
    options.micro_batches = micro_batches;
    options.sequence = true;
    options.zero = 1;
    return options;
}

namespace {

/// A replica's micro-batches.
std::vector<MicroBatch> own_batches(const GptTask& task, GptOnMesh& gpt, int step) {
    const MeshPlan& plan = gpt.plan();
    const int own = plan.options().micro_batches;
    const std::int64_t sequences = task.batch / plan.micro_batches();
    std::vector<MicroBatch> batches;
    batches.reserve(static_cast<std::size_t>(own));
    for (int i = 0; i < own; ++i) {
        const HostTokens tokens =
            tokens_of(task, step, (gpt.replica() * own + i) * sequences, sequences);
        batches.push_back(gpt.micro_batch(tokens.ids, tokens.next));
    }
    return batches;
}

void keep_norm(Rank& rank, const std::vector<Parameter*>& updated) {
    const Tensor squares = squared_gradient_norm(rank.device(), rank.world(), updated);
    if (rank.index() == 0)
        rank.keep_value("norm", std::sqrt(rank.device().peek(squares).at(0)));
}

}  // namespace

RunReport train_on_mesh(Cluster& cluster, const GptTask& task, const MeshPlan& plan,
                        const Advance& advance, const MeshTraining& training) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        GptOnMesh gpt(rank, plan, task.dtype, task.seed);
        const auto optimizer = make_optimizer<Sgd>(gpt.sync().shards(), task.optimizer());
        const TrainingState state(gpt.sync(), optimizer.get());
        int first = 0;
        if (!training.resume.empty())
            first = static_cast<int>(load_checkpoint(
                device, rank.world(), *latest_checkpoint(training.resume), state));
        const auto step = [&](int i) {
            const int at = first + i;
            if (rank.index() == training.lost_rank && at == training.lost_at)
                throw std::runtime_error("device is lost");
            Tensor loss = gpt.step(own_batches(task, gpt, at), *optimizer);
            keep_norm(rank, gpt.sync().shards());
            if (training.save_every > 0 && (at + 1) % training.save_every == 0)
                save_checkpoint(device, rank.world(), training.folder, at + 1, state);
            return loss;
        };
        train(rank, {gpt.parameters(), gpt.sync().shards()}, task.steps - first, step,
              advance);
    });
}

RunReport train_alone(Cluster& cluster, const GptTask& task, int micro_batches,
                      const Advance& advance) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt(task.init(device), task.sizes);
        const auto batches = [&](int step) {
            return upload_batches(device, task, step, 0, micro_batches, micro_batches);
        };
        const auto note_norm = [&](Tensor loss) {
            keep_norm(rank, gpt->parameters());
            return loss;
        };
        train_gpt(rank, *gpt, task, cross_entropy_loss, batches, advance, note_norm);
    });
}

}  // namespace lockstep::lessons

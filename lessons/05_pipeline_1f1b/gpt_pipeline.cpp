#include "lessons/05_pipeline_1f1b/gpt_pipeline.hpp"

#include <algorithm>

#include "src/comm/mesh.hpp"
#include "src/core/require.hpp"
#include "src/nn/optimizer.hpp"

namespace lockstep::lessons {

namespace {

GptSizes sizes_of(const LessonOptions& options, int ranks, std::int64_t vocabulary) {
    GptSizes sizes;
    sizes.vocabulary = vocabulary;
    sizes.context = options.values.integer("context");
    // Enough for two chunks a stage, with embeddings, norm and head.
    sizes.layers = options.values.integer("layers", std::max(ranks, 2 * ranks - 4));
    sizes.block.heads = options.values.integer("heads");
    sizes.block.hidden = options.values.integer("hidden", 16 * sizes.block.heads);
    sizes.tied = options.values.integer("tied") == 1;
    require(sizes.block.hidden % sizes.block.heads == 0,
            "--set hidden={}: {} heads share it out in equal parts, so that it must be a "
            "multiple of them",
            sizes.block.hidden, sizes.block.heads);
    require(sizes.layer_count() >= ranks,
            "--set layers={}: with embeddings, norm and head these are {} layers, too "
            "few for {} stages",
            sizes.layers, sizes.layer_count(), ranks);
    return sizes;
}

}  // namespace

std::shared_ptr<const GptTask> make_pipeline_gpt_task(const LessonOptions& options,
                                                      int ranks, int micro_batches) {
    auto task = make_gpt_task(
        options, options.values.integer("batch", micro_batches),
        [&](std::int64_t vocabulary) { return sizes_of(options, ranks, vocabulary); });
    require(task->batch % micro_batches == 0,
            "--set batch={}: {} micro-batches share it out in equal parts, so that it "
            "must be a multiple of them",
            task->batch, micro_batches);
    return task;
}

RunReport train_gpt_pipeline(Cluster& cluster, const PipelinePlan& plan,
                             const GptTask& task, int replicas, const Advance& advance) {
    const Schedule& schedule = plan.schedule();
    const int share = schedule.micro_batches;
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"pp", schedule.stages}, {"dp", replicas}});
        Communicator& line = mesh["pp"];
        const GptStage stage = make_gpt_stage(task.init(device), task.sizes, schedule,
                                              line.rank(), cut_gpt(task.sizes, schedule));
        Pipeline pipeline(device, line, plan, stage.modules(),
                          gpt_boundary(task.sizes, task.dtype));
        if (replicas > 1) pipeline.reduce_over(mesh["dp"]);
        const auto tied = tie_gpt(pipeline, stage, schedule, line);
        const auto optimizer = make_optimizer<Sgd>(stage.parameters(), task.optimizer());
        const auto step = [&](int i) {
            const auto batches = upload_batches(
                device, task, i, mesh.coordinate("dp") * share, share, share * replicas);
            Tensor loss = pipeline.run(cross_entropy_loss, batches);
            const PhaseScope phase(device, Phase::update);
            optimizer->step();
            return loss;
        };
        train(rank, stage.parameters(), task.steps, step, advance);
    });
}

}  // namespace lockstep::lessons

#include "tests/pipeline/gpt_pipeline.hpp"

#include "src/comm/mesh.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/train_step.hpp"
#include "src/pipeline/pipeline_gpt.hpp"
#include "src/trial/training.hpp"

namespace lockstep::test {

namespace {

constexpr SgdOptions kSgd{0.05, 0.9, 0};

/// Character `i` of a text that has something to learn.
std::int32_t character(std::int64_t i, std::int64_t vocabulary) {
    return static_cast<std::int32_t>((i * i + i / 3) % vocabulary);
}

/// Micro-batches [first, first + count) of a step.
std::vector<MicroBatch> micro_batches(Device& device, const GptTask& task, int step,
                                      int first, int count) {
    std::vector<MicroBatch> batches;
    for (int i = first; i < first + count; ++i) {
        HostTensor ids({task.length, task.batch}, DType::i32);
        HostTensor next({task.length, task.batch}, DType::i32);
        for (std::int64_t e = 0; e < ids.elements(); ++e) {
            const std::int64_t place = (step * task.micro_batches + i) * ids.elements() +
                                       e % task.batch * task.length + e / task.batch;
            ids.set(e, character(place, task.sizes.vocabulary));
            next.set(e, character(place + 1, task.sizes.vocabulary));
        }
        batches.push_back(
            {device.upload(ids), device.upload(next), 1.0 / task.micro_batches});
    }
    return batches;
}

}  // namespace

GptTask small_gpt(bool tied) {
    GptTask task;
    task.sizes.vocabulary = 11;
    task.sizes.context = 6;
    task.sizes.layers = 4;
    task.sizes.block.hidden = 8;
    task.sizes.block.heads = 2;
    task.sizes.tied = tied;
    return task;
}

Outcome train_alone(const GptTask& task) {
    return outcome_of(*sim::make_cluster(1), [&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, task.dtype, 1, ""}, task.sizes);
        AllReduceSync sync(gpt->parameters());
        Sgd optimizer(gpt->parameters(), kSgd);
        train(rank, gpt->parameters(), task.steps, [&](int step) {
            const auto batches = micro_batches(device, task, step, 0, task.micro_batches);
            return train_step(device, *gpt, cross_entropy_loss, batches, sync, optimizer);
        });
    });
}

Outcome train_pipeline(const GptTask& task, const Schedule& schedule, int replicas) {
    const PipelinePlan plan(schedule);
    const auto cut = cut_gpt(task.sizes, schedule);
    const int share = task.micro_batches / replicas;
    sim::ClusterOptions options;
    options.ranks = schedule.stages * replicas;
    options.check = task.check;
    const auto program = [&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"pp", schedule.stages}, {"dp", replicas}});
        Communicator& line = mesh["pp"];
        const GptStage stage = make_gpt_stage({device, task.dtype, 1, ""}, task.sizes,
                                              schedule, line.rank(), cut);
        Pipeline pipeline(device, line, plan, stage.modules(),
                          gpt_boundary(task.sizes, task.dtype));
        std::unique_ptr<Communicator> sharers;
        if (!task.forget_tie) sharers = tie_gpt(pipeline, stage, schedule, line);
        pipeline.tie_copies();
        if (replicas > 1 && !task.forget_replicas) pipeline.reduce_over(mesh["dp"]);
        std::vector<std::unique_ptr<Sgd>> optimizers;
        std::vector<Optimizer*> updates;
        for (const auto& chunk : stage.chunks) {
            optimizers.push_back(std::make_unique<Sgd>(chunk->parameters(), kSgd));
            updates.push_back(optimizers.back().get());
        }
        pipeline.update_by(updates);
        train(rank, stage.parameters(), task.steps, [&](int step) {
            return pipeline.run(
                cross_entropy_loss,
                micro_batches(device, task, step, mesh.coordinate("dp") * share, share));
        });
    };
    return outcome_of(*sim::make_cluster(options), program,
                      task.correct() ? Mistakes::thrown : Mistakes::kept);
}

}  // namespace lockstep::test

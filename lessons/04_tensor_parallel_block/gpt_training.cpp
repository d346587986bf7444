#include "lessons/04_tensor_parallel_block/gpt_training.hpp"

#include <fmt/format.h>

#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

namespace lockstep::lessons {

namespace {

GptSizes sizes_of(const LessonOptions& options, int ranks, std::int64_t vocabulary) {
    GptSizes sizes;
    sizes.vocabulary = vocabulary;
    sizes.context = options.values.integer("context", least_multiple(ranks, 32));
    sizes.layers = options.values.integer("layers");
    sizes.block.heads = options.values.integer("heads", least_multiple(ranks, 4));
    sizes.block.hidden = options.values.integer("hidden", 16 * sizes.block.heads);
    const std::string devices = fmt::format("{} ranks", ranks);
    require_shared_out("heads", sizes.block.heads, ranks, devices);
    require_shared_out("context", sizes.context, ranks, devices);
    require_shared_out("hidden", sizes.block.hidden, sizes.block.heads, "the heads");
    return sizes;
}

}  // namespace

std::unique_ptr<TensorParallel> make_regions(Regions kind, Device& device,
                                             Communicator& group) {
    if (kind == Regions::sequence_parallel)
        return std::make_unique<SequenceParallel>(device, group);
    return std::make_unique<TensorParallel>(device, group);
}

std::shared_ptr<const GptTask> make_shared_gpt_task(const LessonOptions& options,
                                                    int ranks) {
    return make_gpt_task(
        options, options.values.integer("batch"),
        [&](std::int64_t vocabulary) { return sizes_of(options, ranks, vocabulary); });
}

RunReport train_gpt(Cluster& cluster, const GptTask& task, Regions regions,
                    const Advance& advance) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = make_regions(regions, device, rank.world());
        const GptKit kit = tensor_parallel({}, *tp);
        const auto gpt = make_gpt(task.init(device), task.sizes, kit);
        const auto batches = [&](int step) {
            return upload_batches(device, task, step, 0, 1, 1);
        };
        train_gpt(rank, *gpt, task, kit.loss(task.sizes), batches, advance);
    });
}

}  // namespace lockstep::lessons

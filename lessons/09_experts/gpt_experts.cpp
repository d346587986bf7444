#include "lessons/09_experts/gpt_experts.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "src/comm/mesh.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

namespace lockstep::lessons {

std::shared_ptr<const GptTask> make_experts_task(const LessonOptions& options,
                                                 int ranks) {
    const std::int64_t batch = options.values.integer("batch", least_multiple(ranks, 8));
    require_shared_out("batch", batch, ranks, fmt::format("{} ranks", ranks));
    return make_gpt_task(options, batch, [&](std::int64_t vocabulary) {
        GptSizes sizes;
        sizes.vocabulary = vocabulary;
        sizes.context = options.values.integer("context", least_multiple(ranks, 32));
        sizes.layers = options.values.integer("layers");
        BlockSizes& block = sizes.block;
        block.heads = options.values.integer("heads", least_multiple(ranks, 4));
        block.hidden = options.values.integer("hidden", 8 * block.heads);
        block.norm = NormKind::rms_norm;
        block.mlp = MlpKind::swiglu;
        block.bias = false;
        ExpertSizes& experts = block.experts;
        experts.count = options.values.integer("experts", least_multiple(ranks, 8));
        experts.inner = options.values.integer("inner", least_multiple(ranks, 32));
        experts.gate.chosen = options.values.integer("chosen");
        experts.gate.form = GateForm::softmax_then_top_k;
        // A single weight, divided by itself, would be 1, and the gate learn nothing.
        experts.gate.normalized = experts.gate.chosen > 1;
        const std::string all = fmt::format("{} ranks", ranks);
        require_shared_out("heads", block.heads, ranks, all);
        require_shared_out("hidden", block.hidden, block.heads, "the heads");
        require_shared_out("experts", experts.count, ranks, all);
        require_shared_out("inner", experts.inner, ranks, all);
        require_shared_out("context", sizes.context, ranks, all);
        return sizes;
    });
}

namespace {

/// How much busier than the mean the busiest expert of any layer was.
double busiest(const std::vector<std::vector<std::int64_t>>& loads) {
    double most = 0;
    for (const std::vector<std::int64_t>& load : loads) {
        const auto copies = static_cast<double>(
            std::accumulate(load.begin(), load.end(), std::int64_t{0}));
        const auto largest = static_cast<double>(*std::ranges::max_element(load));
        most = std::max(most, largest * static_cast<double>(load.size()) / copies);
    }
    return most;
}

}  // namespace

// lesson: experts-mesh
RunReport train_gpt_experts(Cluster& cluster, const GptTask& task, const ExpertRun& run,
                            const Advance& advance) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), {{"ep", run.ep}, {"tp", run.tp}});
        TensorParallel tp(device, mesh["tp"]);
        GptKit kit;
        if (run.tp > 1) kit = tensor_parallel(kit, tp);
        kit = expert_parallel(kit, mesh, {"ep"},
                              {.batch = {"ep"}, .tp = run.tp > 1 ? &tp : nullptr});
        const auto gpt = make_gpt(task.init(device), task.sizes, kit);
        declare_replicas_of(mesh, {"ep"}, *gpt);
        // lesson: end
        const auto layers = expert_layers(*gpt);
        const auto batches = [&](int step) {
            return upload_batches(device, task, step, mesh.coordinate("ep"), 1, run.ep);
        };
        const auto balance = [&](const Tensor& share) {
            const auto loads =
                balance_by_bias(device, rank.world(), layers, run.bias_rate);
            if (rank.index() == 0) rank.keep_value("load", busiest(loads));
            // All ranks of a tensor group have the same loss.
            return tp.rank() == 0 ? share : Tensor();
        };
        train_gpt(rank, *gpt, task, kit.loss(task.sizes), batches, advance, balance);
    });
}

}  // namespace lockstep::lessons

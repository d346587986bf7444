#include "lessons/10_mesh/mesh_steps.hpp"

#include <algorithm>

#include "sim/cluster.hpp"
#include "src/device/ledger.hpp"

namespace lockstep::lessons {

namespace {

constexpr double kMostNorm = 1.0;

RunReport run_steps(const MeshStep& step, const MeshPlan& plan, int steps, bool trace) {
    sim::ClusterOptions options;
    options.ranks = plan.shape().ranks();
    options.spec = step.spec;
    options.numbers = false;
    options.trace = trace;
    options.check = sim::CheckLevel::cheap;
    return sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        GptOnMesh gpt(rank, plan, step.shape.dtype, 0);
        const auto optimizer = make_optimizer<AdamW>(gpt.sync().shards(), AdamWOptions{});
        const Tensor ids = device.empty(
            {step.shape.length / plan.size("cp"), step.shape.batch}, DType::i32);
        const std::vector<MicroBatch> batches(
            static_cast<std::size_t>(plan.options().micro_batches),
            MicroBatch{ids, ids, plan.weight()});
        for (int i = 0; i < steps; ++i)
            gpt.step(batches, *optimizer, kMostNorm);
    });
}

}  // namespace

MeasuredMeshStep measure_mesh_step(const MeshStep& step, bool trace) {
    const MeshPlan plan(step.sizes, step.options);
    MeasuredMeshStep measured;
    measured.report = run_steps(step, plan, 1, trace);
    measured.time = measured.report.makespan();
    for (const RankReport& rank : measured.report.ranks) {
        const MemoryReport& memory = rank.memory;
        measured.state =
            std::max(measured.state, memory.peak_of(MemoryCategory::parameters) +
                                         memory.peak_of(MemoryCategory::gradients) +
                                         memory.peak_of(MemoryCategory::optimizer));
        measured.activations =
            std::max(measured.activations, memory.peak_of(MemoryCategory::activations));
        measured.peak = std::max(measured.peak, memory.peak);
    }
    return measured;
}

std::optional<MeasuredMeshStep> measure_if_it_fits(const MeshStep& step) {
    try {
        return measure_mesh_step(step);
    } catch (const OutOfMemoryError&) {
        return std::nullopt;
    }
}

std::int64_t sent_between_nodes(const RunReport& report) {
    std::int64_t bytes = 0;
    for (const RankReport& rank : report.ranks)
        for (const Traffic& traffic : rank.traffic)
            if (traffic.between_nodes) bytes += traffic.bytes_sent;
    return bytes;
}

}  // namespace lockstep::lessons

#include "lessons/04_tensor_parallel_block/block_runs.hpp"

#include <algorithm>

#include "src/parallel/tensor_parallel_kit.hpp"

namespace lockstep::lessons {

namespace {

void run(Rank& rank, const Twins& twins, Module& module, Passes passes) {
    Device& device = rank.device();
    const auto random = [&](const char* name) {
        Tensor tensor =
            device.empty({twins.length, twins.batch, twins.hidden}, twins.dtype);
        device.random_normal(tensor, {twins.seed, name}, 0, 1);
        return tensor;
    };
    Saved saved;
    {
        const Tensor x = random("twins/x");
        const PhaseScope phase(device, Phase::forward);
        rank.keep("y", module.forward(x, saved));
    }
    if (passes == Passes::forward) return;
    const Tensor dy = random("twins/dy");
    const PhaseScope phase(device, Phase::backward);
    rank.keep("dx", module.backward(dy, saved));
    for (const Parameter* parameter : module.parameters())
        rank.keep("grad/" + parameter->name(), parameter->gradient, parameter->part());
}

}  // namespace

RunReport run_alone(Cluster& cluster, const Twins& twins) {
    return cluster.run([&](Rank& rank) {
        const auto module = twins.alone({rank.device(), twins.dtype, twins.seed, ""});
        run(rank, twins, *module, Passes::both);
    });
}

RunReport run_shared(Cluster& cluster, const Twins& twins, Passes passes) {
    return cluster.run([&](Rank& rank) {
        TensorParallel tp(rank.device(), rank.world());
        const auto module =
            twins.shared({rank.device(), twins.dtype, twins.seed, ""}, tp);
        run(rank, twins, *module, passes);
    });
}

namespace {

/// Bytes of a mean, or of 1/deviation: f32, also of rows in 16 bits.
constexpr std::int64_t kStatistic = 4;

std::int64_t live_activations(const Device& device) {
    std::int64_t bytes = 0;
    for (const Storage* storage = device.live(); storage != nullptr;
         storage = storage->next)
        if (storage->category == MemoryCategory::activations) bytes += storage->bytes;
    return bytes;
}

}  // namespace

Activations measure_activations(const BlockSizes& sizes, std::int64_t length,
                                std::int64_t batch, int ranks, Regions regions) {
    Activations result;
    const RunReport report = make_shapes_only_cluster(ranks)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = make_regions(regions, device, rank.world());
        const auto block =
            make_block({device, DType::bf16, 1, "h.0"}, sizes, tensor_parallel({}, *tp));
        const std::int64_t part =
            regions == Regions::replicated ? length : length / ranks;
        Saved saved;
        Tensor y =
            block->forward(device.empty({part, batch, sizes.hidden}, DType::bf16), saved);
        const Shape shape = y.shape();
        y = {};  // The next block's, which saves it.
        if (rank.index() == 0) result.held = live_activations(device);
        block->backward(device.empty(shape, DType::bf16), saved);
    });
    const RankReport& first = report.ranks.front();
    result.peak = first.memory.peak_of(MemoryCategory::activations);
    result.sent = first.bytes_sent();
    for (const Traffic& traffic : first.traffic)
        if (traffic.verb == name_of(Verb::reduce_scatter))
            result.scatters += traffic.calls;
    result.time = report.makespan();
    return result;
}

std::vector<Term> activation_terms(const BlockSizes& sizes, std::int64_t length,
                                   std::int64_t batch, int ranks, Regions regions) {
    const bool split = regions == Regions::sequence_parallel;
    const std::int64_t sbh = length * batch * sizes.hidden;
    const std::int64_t scores = batch * sizes.heads * length * length;
    const std::int64_t outside = split ? ranks : 1;
    const std::int64_t statistics = 4 * kStatistic * length * batch / outside;
    return {{"norms", 8 * sbh / outside, 8 * sbh / outside},
            {"masks", 2 * sbh / outside, 0},
            {"attention", 8 * sbh / ranks, 8 * sbh / ranks},
            {"mlp", 16 * sbh / ranks, 16 * sbh / ranks},
            {"softmax", 2 * scores / ranks, 2 * scores / ranks},
            {"dropout", 3 * scores / ranks, 0},
            {"statistics", 0, statistics}};
}

std::vector<Term> peak_terms(const BlockSizes& sizes, std::int64_t length,
                             std::int64_t batch, int ranks) {
    const std::int64_t sbh = length * batch * sizes.hidden;
    const std::int64_t scores = 2 * batch * sizes.heads * length * length / ranks;
    return {{"norm", 0, 4 * sbh},
            {"statistics", 0, 2 * kStatistic * length * batch},
            {"attention", 0, 6 * sbh / ranks},
            {"softmax", 0, scores},
            {"outside", 0, 4 * sbh},
            {"projection", 0, 2 * sbh / ranks},
            {"attention_gradients", 0, 6 * sbh / ranks},
            {"score_gradients", 0, 2 * scores}};
}

}  // namespace lockstep::lessons

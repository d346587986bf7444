#include "lessons/03_tensor_parallel_block/block_runs.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/report/compare.hpp"

namespace lockstep::lessons {

namespace {

void run(Rank& rank, const Twins& twins, Module& module, Pass pass) {
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
    if (pass == Pass::forward) return;
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
        run(rank, twins, *module, Pass::both);
    });
}

RunReport run_shared(Cluster& cluster, const Twins& twins, Pass pass) {
    return cluster.run([&](Rank& rank) {
        TensorParallel tp(rank.device(), rank.world());
        const auto module =
            twins.shared({rank.device(), twins.dtype, twins.seed, ""}, tp);
        run(rank, twins, *module, pass);
    });
}

double twin_difference(const RunReport& shared, const RunReport& alone) {
    NamedTensors together;
    for (const char* name : {"y", "dx"})
        together.emplace(name, shared.ranks.front().kept.at(name));
    for (const auto& [name, tensor] : kept_under(shared, "grad/"))
        together.emplace("grad/" + name, tensor);
    const NamedTensors one(alone.ranks.front().kept.begin(),
                           alone.ranks.front().kept.end());
    double worst = 0;
    for (const TensorDifference& tensor :
         compare_tensors(together, one, std::nullopt).tensors) {
        if (!tensor.problem.empty() || std::isnan(tensor.largest_relative))
            return std::nan("");
        worst = std::max(worst, tensor.largest_relative);
    }
    return worst;
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
    result.peak =
        first.memory.category_peak[static_cast<std::size_t>(MemoryCategory::activations)];
    result.sent = first.bytes_sent();
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
    const std::string over = split ? "/t" : "";
    return {{"inputs of both norms, and what they give", "8 sbh" + over,
             8 * sbh / outside, 8 * sbh / outside},
            {"dropout masks of attention and MLP", "2 sbh" + over, 2 * sbh / outside, 0},
            {"queries, keys, values; input of c_proj", "8 sbh/t", 8 * sbh / ranks,
             8 * sbh / ranks},
            {"input of GELU; input of the second layer", "16 sbh/t", 16 * sbh / ranks,
             16 * sbh / ranks},
            {"softmax's result", "2 as²b/t", 2 * scores / ranks, 2 * scores / ranks},
            {"its dropout mask and result", "3 as²b/t", 3 * scores / ranks, 0},
            {"mean and 1/deviation of each token in both norms", "none", 0, statistics}};
}

std::vector<Term> peak_terms(const BlockSizes& sizes, std::int64_t length,
                             std::int64_t batch, int ranks) {
    const std::int64_t sbh = length * batch * sizes.hidden;
    const std::int64_t scores = 2 * batch * sizes.heads * length * length / ranks;
    const auto term = [](const char* what, const char* formula, std::int64_t bytes) {
        return Term{what, formula, 0, bytes};
    };
    return {
        term("ln_1's input and result", "4 sbh", 4 * sbh),
        term("ln_1's mean and 1/deviation of each token", "8 sb",
             2 * kStatistic * length * batch),
        term("queries, keys, values", "6 sbh/t", 6 * sbh / ranks),
        term("softmax's result", "2 as²b/t", scores),
        term("gradients of the block's result and of its middle", "4 sbh", 4 * sbh),
        term("gradient of c_proj's input", "2 sbh/t", 2 * sbh / ranks),
        term("gradients of queries, keys, values", "6 sbh/t", 6 * sbh / ranks),
        term("gradients of softmax's result and of the scores", "4 as²b/t", 2 * scores)};
}

}  // namespace lockstep::lessons

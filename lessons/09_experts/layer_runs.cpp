#include "lessons/09_experts/layer_runs.hpp"

#include <algorithm>

#include "src/nn/gpt.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"

namespace lockstep::lessons {

MixtureOfExperts::Sizes layer_of(std::int64_t hidden, std::int64_t experts,
                                 std::int64_t inner, std::int64_t chosen) {
    MixtureOfExperts::Sizes sizes;
    sizes.hidden = hidden;
    sizes.of.count = experts;
    sizes.of.inner = inner;
    sizes.of.gate.chosen = chosen;
    return sizes;
}

RunReport run_layer(Cluster& cluster, const LayerRun& of) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), {{"ep", of.ranks}});
        MixtureOfExperts layer({device, of.dtype, of.seed, ""}, of.sizes,
                               exchange_experts(mesh, {"ep"}), nullptr);
        declare_replicas_of(mesh, {"ep"}, layer);
        const Tensor x = device.empty({of.tokens, of.sizes.hidden}, of.dtype);
        device.random_normal(x, RandomStream(of.seed, "tokens"), 0, 1,
                             rank.index() * x.elements());
        Saved saved;
        const Tensor y = of.trains ? layer.forward(x, saved) : layer.infer(x);
        if (of.trains) {
            const Tensor dy = device.zeros(y.shape(), y.dtype());
            layer.backward(dy, saved);
            for (const std::int64_t copies : layer.take_load())
                rank.keep_value("load", static_cast<double>(copies));
        }
        if (device.has_numbers())
            rank.keep("y", y,
                      row_part({of.ranks * of.tokens, of.sizes.hidden},
                               rank.index() * of.tokens, of.tokens));
    });
}

RunReport run_shared_mlp(Cluster& cluster, std::int64_t tokens, std::int64_t hidden,
                         std::int64_t inner, DType dtype) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        TensorParallel tp(device, rank.world());
        const auto mlp = make_swiglu_mlp({device, dtype, 0, ""}, hidden, inner,
                                         tensor_parallel({}, tp));
        const Tensor x = device.zeros({tokens, hidden}, dtype);
        Saved saved;
        mlp->backward(mlp->forward(x, saved), saved);
    });
}

Crossings count_crossings(Device& device, std::int64_t tokens, std::int64_t experts,
                          std::int64_t chosen, std::int64_t nodes, std::int64_t most) {
    GateOptions options;
    options.chosen = chosen;
    if (most < nodes) {
        options.groups = nodes;
        options.chosen_groups = most;
    }
    const Gate gate({device, DType::f32, 0, "gate"}, experts, options);
    const Tensor logits = device.empty({tokens, experts}, DType::f32);
    device.random_normal(logits, RandomStream(7, "logits"), 0, 1);
    const HostTensor ids = device.peek(gate.choose(logits, {}, SourceLine::here()).ids);
    Crossings crossings;
    for (std::int64_t token = 0; token < tokens; ++token) {
        std::vector<std::int64_t> others;
        for (std::int64_t j = 0; j < chosen; ++j) {
            const auto expert = static_cast<std::int64_t>(ids.at(token * chosen + j));
            const std::int64_t node = expert * nodes / experts;
            if (node == token * nodes / tokens) continue;
            ++crossings.copies;
            if (std::ranges::count(others, node) == 0) others.push_back(node);
        }
        crossings.tokens += static_cast<std::int64_t>(others.size());
    }
    return crossings;
}

}  // namespace lockstep::lessons

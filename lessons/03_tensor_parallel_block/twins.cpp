#include "lessons/03_tensor_parallel_block/twins.hpp"

#include <algorithm>
#include <cmath>
#include <optional>

#include "src/report/compare.hpp"

namespace lockstep::lessons {

namespace {

void run(Rank& rank, const Twins& twins, Module& module, Pass pass) {
    Device& device = rank.device();
    const auto random = [&](const char* name) {
        const Tensor tensor = device.empty(
            {twins.length, twins.batch, twins.hidden}, twins.dtype);
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
        rank.keep("grad/" + parameter->name(), parameter->gradient);
}

}  // namespace

RunReport run_alone(Cluster& cluster, const Twins& twins) {
    return cluster.run([&](Rank& rank) {
        const auto module =
            twins.alone({rank.device(), twins.dtype, twins.seed, ""});
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

double twin_difference(const Twins& twins, const RunReport& shared,
                       const RunReport& alone) {
    const WholeParameters whole(
        static_cast<int>(shared.ranks.size()),
        [&](Rank& rank, const WholeParameters::Show& show) {
            TensorParallel tp(rank.device(), rank.world());
            show(*twins.shared({rank.device(), DType::f32, 0, ""}, tp));
        });
    NamedTensors together;
    for (const char* name : {"y", "dx"})
        together.emplace(name, shared.ranks.front().kept.at(name));
    for (const auto& [name, tensor] : whole.put_together(shared, "grad/"))
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

}  // namespace lockstep::lessons

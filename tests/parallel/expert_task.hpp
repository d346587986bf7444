// A small model with a layer of experts, on ranks with different rows and on one device.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "src/comm/mesh.hpp"
#include "src/parallel/expert_parallel.hpp"
#include "src/parallel/placement.hpp"
#include "tests/parallel/data_parallel_task.hpp"

namespace lockstep::test {

inline constexpr std::int64_t kExpertHidden = 8;

/// 24 experts and one shared expert.
ExpertSizes small_experts();

// The model has three layers: linear, x + experts(x), linear. Each function keeps losses,
// values, biases and the last step's gradients.

/// Trains one device on all workers' rows, in one batch.
Outcome train_experts_alone(const ExpertSizes& experts, int workers, int steps);

/// The ranks of a training, and how they make exchange, declarations and strategy.
struct ExpertWorkers {
    std::vector<Mesh::Axis> axes;  ///< the ranks' mesh; each rank has different rows
    std::function<std::shared_ptr<ExpertExchange>(Mesh&)> exchange;
    std::function<void(Mesh&, Module&)> declare = [](Mesh& mesh, Module& model) {
        std::vector<std::string> names;
        for (const Mesh::Axis& axis : mesh.axes())
            names.push_back(axis.name);
        declare_replicas_of(mesh, names, model);
    };
    std::function<std::unique_ptr<GradientSync>(Device&, Mesh&, Module&)> sync =
        [](Device&, Mesh&, Module& model) -> std::unique_ptr<GradientSync> {
        return std::make_unique<AllReduceSync>(model.parameters());
    };
    int micro_batches = 1;
    sim::CheckLevel check = sim::CheckLevel::full;
};
Outcome train_experts(const ExpertSizes& experts, const ExpertWorkers& workers,
                      int steps);

/// Returns an exchange among ranks along "ep"; the batch consists of all ranks' rows.
std::shared_ptr<ExpertExchange> along_ep(Mesh& mesh);

}  // namespace lockstep::test

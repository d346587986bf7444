// A small model with a layer of experts, on ranks with their own rows and on one device.
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

/// 24 experts and a shared one.
ExpertSizes small_experts();

// The model is linear, x + experts(x), linear, on rows. Each function keeps losses,
// values (and biases) and the last step's gradients.

/// Trains one device on all workers' rows, in one batch.
Outcome train_experts_alone(const ExpertSizes& experts, int workers, int steps);

/// Makes the exchange of a rank, and the strategy by which it trains.
struct ExpertWorkers {
    std::vector<Mesh::Axis> axes;  ///< of the ranks; each rank has its own rows
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

/// Returns an exchange of the ranks along "ep"; its batch is the batch of all ranks.
std::shared_ptr<ExpertExchange> along_ep(Mesh& mesh);

}  // namespace lockstep::test

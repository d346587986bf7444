// Experts on several ranks must train as on one device, and send what the formulas say.

#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "src/parallel/placement.hpp"
#include "src/parallel/zero_1.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/expert_task.hpp"
#include "tests/parallel/twin.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

constexpr int kManySteps = 20;

std::vector<std::pair<std::string, ExpertSizes>> tasks() {
    ExpertSizes plain = small_experts();
    plain.gate.balance = 0.1;
    plain.gate.z = 0.01;
    ExpertSizes deepseek = plain;
    deepseek.gate.form = GateForm::sigmoid;
    deepseek.gate.chosen = 3;
    deepseek.gate.normalized = true;
    deepseek.gate.factor = 2.5;
    deepseek.gate.biased = true;
    deepseek.portions = 2;
    ExpertSizes gshard = plain;
    gshard.gate.form = GateForm::softmax_then_top_k;
    gshard.gate.normalized = true;
    gshard.gate.noise = 0.1;
    gshard.capacity = 1.5;
    ExpertSizes switches = plain;
    switches.gate.form = GateForm::softmax_then_top_k;
    switches.gate.chosen = 1;
    switches.capacity = 1;
    switches.order = CopyOrder::tokens;
    switches.shared = 0;
    return {{"top k, then softmax", plain},
            {"sigmoids and a bias", deepseek},
            {"softmax, a capacity and noise", gshard},
            {"one expert a token", switches}};
}

ExpertWorkers on_ranks(int ranks) {
    return {{{"ep", ranks}}, along_ep};
}

}  // namespace

TEST_CASE("Experts of several ranks train as on one device", "[parallel][experts]") {
    for (const auto& [name, task] : tasks())
        for (const int ranks : {1, 2, 3, 4, 8}) {
            CAPTURE(name, ranks);
            check_alike(train_experts(task, on_ranks(ranks), kManySteps),
                        train_experts_alone(task, ranks, kManySteps));
        }
}

TEST_CASE(
    "Replicas of experts train as one device, with ZeRO over each expert's own ranks",
    "[parallel][experts]") {
    for (const auto& [name, task] : tasks())
        for (const auto& [dp, ep] : {std::pair{2, 2}, {3, 2}, {2, 4}})
            for (const bool zero : {false, true}) {
                CAPTURE(name, dp, ep, zero);
                ExpertWorkers workers{{{"dp", dp}, {"ep", ep}}, along_ep};
                if (zero)
                    workers.sync = [](Device& device, Mesh& mesh, Module& model) {
                        return zero_1_by_places(device, mesh, {"dp", "ep"},
                                                model.parameters(),
                                                {.sizes = {400, 400}});
                    };
                check_alike(train_experts(task, workers, kManySteps),
                            train_experts_alone(task, dp * ep, kManySteps));
            }
}

TEST_CASE("Micro-batches of experts add up", "[parallel][experts]") {
    ExpertSizes task = small_experts();
    task.gate.chosen = 3;
    ExpertWorkers workers = on_ranks(4);
    workers.micro_batches = 3;
    check_alike(train_experts(task, workers, kManySteps),
                train_experts_alone(task, 4, kManySteps));
}

}  // namespace lockstep::test

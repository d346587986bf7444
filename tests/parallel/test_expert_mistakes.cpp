// Mistakes with experts. Each mistake raises an error or makes numbers wrong.

#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include "src/parallel/placement.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "tests/catch.hpp"
#include "tests/message_of.hpp"
#include "tests/parallel/expert_task.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

constexpr int kRanks = 4;
constexpr int kSteps = 3;
/// A weight with a larger error than this is wrong by more than rounding.
constexpr double kFar = 1e-3;

/// Swaps the first and the last row that a rank returns.
class SwappedBack : public Delivery {
  public:
    explicit SwappedBack(std::unique_ptr<Delivery> right)
        : Delivery(right->rows()), right_(std::move(right)) {}

    void start_there(const Tensor& copies, SourceLine at) override {
        right_->start_there(copies, at);
    }
    Tensor there(SourceLine at) override { return right_->there(at); }
    void start_back(const Tensor& made, SourceLine at) override {
        std::vector<std::int32_t> order(
            static_cast<std::size_t>(made.shape().matrix_rows()));
        std::iota(order.begin(), order.end(), 0);
        if (!order.empty()) std::swap(order.front(), order.back());
        Device& device = *made.device();
        const Tensor swapped = device.empty(made.shape(), made.dtype());
        device.take_rows(
            swapped, made,
            device.upload(HostTensor::of({made.shape().matrix_rows(), 1}, order)));
        right_->start_back(swapped, at);
    }
    Tensor back(SourceLine at) override { return right_->back(at); }

  private:
    std::unique_ptr<Delivery> right_;
};

/// The right exchange, except that deliveries are wrong.
class SwappingExchange : public ExpertExchange {
  public:
    explicit SwappingExchange(Mesh& mesh) : right_(exchange_experts(mesh, {"ep"})) {}

    Share share(const std::string& layer, std::int64_t experts) const override {
        return right_->share(layer, experts);
    }
    void place(const std::vector<Parameter*>& gate,
               const std::vector<Parameter*>& experts) override {
        right_->place(gate, experts);
    }
    std::unique_ptr<Delivery> deliver(Device& device, const Counts& counts,
                                      SourceLine at) override {
        return std::make_unique<SwappedBack>(right_->deliver(device, counts, at));
    }

  private:
    std::shared_ptr<ExpertExchange> right_;
};

bool is_of_experts(const Parameter& parameter) {
    return parameter.name().find(".experts.") != std::string::npos;
}

/// Changes the gradients of experts as soon as they are complete.
ExpertWorkers changing(const std::function<void(Mesh&, const Tensor& gradient)>& change) {
    ExpertWorkers workers{{{"ep", kRanks}}, along_ep};
    workers.declare = [change, declare = workers.declare](Mesh& mesh, Module& model) {
        declare(mesh, model);
        for (Parameter* parameter : model.parameters())
            if (is_of_experts(*parameter))
                parameter->on_gradient(
                    [change, &mesh](Parameter& done) { change(mesh, done.gradient); });
    };
    return workers;
}

/// Declares parameters, except experts', as replicas; gates as `kind` or not at all.
ExpertWorkers with_gates(std::optional<Placement::Kind> kind) {
    ExpertWorkers workers{{{"ep", kRanks}}, along_ep};
    workers.declare = [kind](Mesh& mesh, Module& model) {
        for (Parameter* parameter : model.parameters()) {
            const bool gate = parameter->name().find("gate.weight") != std::string::npos;
            if (is_of_experts(*parameter)) continue;
            if (!gate)
                replicate_over(mesh["ep"], {parameter}, Placement::Kind::partial);
            else if (kind)
                replicate_over(mesh["ep"], {parameter}, *kind);
        }
    };
    return workers;
}

ExpertSizes softmax_first() {
    ExpertSizes task = small_experts();
    task.gate.form = GateForm::softmax_then_top_k;
    return task;
}

/// Returns the relative difference between the ranks' weights and one device's.
double off(const ExpertWorkers& workers, const ExpertSizes& task = softmax_first()) {
    const Outcome many = train_experts(task, workers, kSteps);
    const Outcome one =
        train_experts_alone(task, MeshShape(workers.axes).ranks(), kSteps);
    return difference(named_under(many.results, "value/"),
                      named_under(one.results, "value/"))
        .relative;
}

/// Returns the error that ends the training.
std::string said(const ExpertWorkers& workers) {
    return message_of<std::exception>(
        [&] { train_experts(softmax_first(), workers, kSteps); });
}

}  // namespace

TEST_CASE("Two rows swapped on their way back lead to other weights",
          "[parallel][experts][errors]") {
    CHECK(off({{{"ep", kRanks}}, [](Mesh& mesh) {
                   return std::make_shared<SwappingExchange>(mesh);
               }}) > kFar);
}

TEST_CASE("Gradients of experts are not averaged over other experts' ranks",
          "[parallel][experts][errors]") {
    const std::string averaged = said(changing([](Mesh& mesh, const Tensor& gradient) {
        mesh["ep"].all_reduce(gradient, Reduction::mean).wait();
    }));
    CHECK_THAT(averaged, says("F26"));
    CHECK_THAT(averaged, says("of ep adds up different parts of mlp.experts."));
    // This declaration wrongly makes different experts replicas of each other.
    ExpertWorkers plane{{{"dp", 2}, {"ep", 2}}, along_ep};
    plane.declare = [](Mesh& mesh, Module& model) {
        declare_replicas_of(mesh.world(), model);
    };
    const std::string declared = said(plane);
    CHECK_THAT(declared, says("F26"));
    CHECK_THAT(declared, says("of world adds up different parts of mlp.experts."));
}

TEST_CASE("Experts' gradients that are divided twice by the number of ranks are far off",
          "[parallel][experts][errors]") {
    CHECK(off(changing([](Mesh&, const Tensor& gradient) {
              gradient.device()->scale(gradient, 1.0 / kRanks);
          })) > kFar);
}

TEST_CASE("Drifting gates are named", "[parallel][experts][errors]") {
    const std::string drifted = said(with_gates(Placement::Kind::replicated));
    CHECK_THAT(drifted, says("F23"));
    CHECK_THAT(drifted, says("hold the same mlp.gate.weight"));
    // If gates are not declared, the difference is found only when results are kept.
    CHECK_THAT(said(with_gates({})),
               says("'grad/mlp.gate.weight': ranks 0 and 1 kept different bits"));
}

TEST_CASE("Capacities and balance are computed from the whole batch, not from own tokens",
          "[parallel][experts][errors]") {
    const ExpertWorkers local{{{"ep", kRanks}},
                              [](Mesh& mesh) { return exchange_experts(mesh, {"ep"}); }};
    ExpertSizes task = softmax_first();
    CHECK(off(local, task) <= 1e-12);
    task.capacity = 1;
    CHECK(off(local, task) > kFar);
    task.capacity = 0;
    task.gate.balance = 1;
    CHECK(off(local, task) > kFar);
}

TEST_CASE("Tokens that all ranks of a tensor group send count several times",
          "[parallel][experts][errors]") {
    // The exchange refuses this mistake.
    classroom(2)->run([](Rank& rank) {
        Mesh mesh(rank.world(), {{"tp", 2}});
        TensorParallel tp(rank.device(), mesh["tp"]);
        CHECK_THAT(refusal([&] {
                       exchange_experts(mesh, {"tp"}, {.tp = &tp, .drop_copies = false});
                   }),
                   says("each expert would get each token, and its gradient, 2 times; "
                        "leave drop_copies on"));
    });
    // If the mistake is made by hand, y is right, but the experts' gradient is doubled.
    const HostTensor x = normal_values({6, 8}, "x");
    const Task pass = [](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        ExpertSizes task = small_experts();
        task.shared = 0;
        Mesh mesh(rank.world(), {{"tp", rank.size()}});
        // The ranks have different experts, but every rank sends all tokens.
        MixtureOfExperts layer({rank.device(), DType::f64, 1, ""}, {task, kExpertHidden},
                               rank.size() > 1 ? exchange_experts(mesh, {"tp"}) : nullptr,
                               nullptr);
        if (rank.size() > 1)
            replicate_over(mesh["tp"], {find_parameter(layer, "gate.weight")},
                           Placement::Kind::replicated);
        pass_through(layer, in, out);
    };
    const Case given{{{"x", {x}}, {"dy", {x}}}};
    const NamedTensors right = outcome_of(*classroom(1), pass, given).results;
    const NamedTensors twice = outcome_of(*classroom(2), pass, given).results;
    for (const char* name : {"y", "grad/gate.weight"})
        CHECK(relative_difference(twice.at(name), right.at(name)) <= 1e-12);
    for (const std::string name :
         {"grad/experts.gate_up_proj.weight", "grad/experts.down_proj.weight"}) {
        HostTensor doubled = right.at(name);
        for (std::int64_t i = 0; i < doubled.elements(); ++i)
            doubled.set(i, 2 * doubled.at(i));
        CHECK(relative_difference(twice.at(name), doubled) <= 1e-12);
    }
}

TEST_CASE("Experts without knowledge of their tensor group are refused",
          "[parallel][experts][errors]") {
    classroom(2)->run([](Rank& rank) {
        Mesh mesh(rank.world(), {{"ep", 1}, {"tp", 2}}), other(rank.world(), {{"tp", 2}});
        TensorParallel tp(rank.device(), mesh["tp"]);
        BlockSizes sizes{8, 2};
        sizes.experts.count = 2;
        const ParameterInit init{rank.device(), DType::f64, 1, "h.0"};
        const auto refused = [&](const GptKit& kit) {
            return refusal([&] { make_block(init, sizes, kit); });
        };
        const GptKit shared = tensor_parallel({}, tp);
        const std::string sentence =
            "h.0.mlp: linear layers are sharded over a tensor group, but the kit does "
            "not say what this group does with experts";
        CHECK_THAT(refused(shared), says(sentence));
        CHECK_THAT(refused(expert_parallel(shared, mesh, {"ep"})), says(sentence));
        SequenceParallel deals(rank.device(), mesh["tp"]);
        CHECK_THAT(refused(expert_parallel(tensor_parallel({}, deals), mesh, {"ep"},
                                           {.tp = &tp})),
                   says("layers shard a sequence over 2 ranks, but experts over 1"));
        CHECK_THAT(
            refusal([&] {
                exchange_experts(mesh, {"ep"},
                                 {.batch = {"tp"}, .tp = &tp, .drop_copies = false});
            }),
            says("If their axis, tp, were one of the batch, each token would count "
                 "2 times"));
        CHECK_THAT(refusal([&] { exchange_experts(other, {"tp"}, {.tp = &tp}); }),
                   says("the tensor group tp is not a line of this mesh"));
        // The experts and the replicas are on different meshes.
        MixtureOfExperts layer(init, {softmax_first(), kExpertHidden},
                               exchange_experts(other, {"tp"}), nullptr);
        CHECK_THAT(
            refusal([&] { declare_replicas_of(mesh, {"ep"}, layer); }),
            says(
                "is sharded along tp, which is neither a line nor a plane of this mesh"));
        CHECK_THAT(refusal([&] {
                       const GptKit once = expert_parallel({}, mesh, {"ep"});
                       expert_parallel(once, mesh, {"ep"});
                   }),
                   says("the kit's experts are sharded already"));
        ExpertSizes odd = softmax_first();
        odd.count = 3;
        CHECK_THAT(refusal([&] {
                       MixtureOfExperts(init, {odd, kExpertHidden},
                                        exchange_experts(mesh, {"tp"}), nullptr);
                   }),
                   says("h.0: 3 experts cannot be sharded over 2 ranks"));
    });
}

TEST_CASE("Impossible sizes of experts are refused", "[parallel][experts][errors]") {
    classroom(1)->run([](Rank& rank) {
        BlockSizes sizes{8, 2};
        sizes.experts.count = 2;
        const ParameterInit init{rank.device(), DType::f64, 1, "h.0"};
        for (const auto& change : std::vector<std::function<void(GptSizes&)>>{
                 [](GptSizes& gpt) { gpt.block.experts.count = -1; },
                 [](GptSizes& gpt) { gpt.block.experts.shared = -5; },
                 [](GptSizes& gpt) { gpt.dense_blocks = -2; }}) {
            GptSizes model{11, 4, 1, sizes};
            change(model);
            CHECK_THAT(refusal([&] { make_gpt(init, model); }),
                       says("none may be negative"));
        }
        BlockSizes scaled = sizes;
        scaled.experts.gate.factor = 0;
        CHECK_THAT(refusal([&] { make_block(init, scaled, {}); }),
                   says("weights are multiplied by 0"));
    });
}

}  // namespace lockstep::test

// What goes wrong with experts: each mistake ends in a sentence, or is far off.

#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "src/parallel/exchange_counts.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/run/diagnosis.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/expert_task.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

using Counts = std::vector<std::int64_t>;

constexpr int kRanks = 4;
constexpr int kSteps = 3;

/// Returns what is sent to each rank, of counts for all ranks' experts.
Counts of_ranks(const Counts& counts, int ranks) {
    const auto block = static_cast<std::ptrdiff_t>(counts.size()) / ranks;
    Counts sums;
    for (auto at = counts.begin(); at != counts.end(); at += block)
        sums.push_back(std::accumulate(at, at + block, std::int64_t{0}));
    return sums;
}

/// Expects of each rank as many rows as it sends to itself: right if loads are equal.
class CountsAfterData : public Delivery {
  public:
    CountsAfterData(Communicator& group, const Counts& counts)
        : Delivery(counts), group_(group), sent_(of_ranks(counts, group.size())) {}

    void start_there(const Tensor& copies, SourceLine at) override {
        const std::int64_t each = sent_[static_cast<std::size_t>(group_.rank())];
        const Counts received(sent_.size(), each);
        const Tensor arrived = copies.device()->empty(
            {each * group_.size(), copies.shape().columns()}, copies.dtype());
        group_.all_to_all_v(arrived, received, copies, sent_, at).wait(at);
    }

  private:
    Communicator& group_;
    Counts sent_;
};

/// Orders rows expert by expert twice more on their way back, so that the right delivery,
/// which undoes that once, leaves them ordered once too often.
class UndoneBackwards : public Delivery {
  public:
    UndoneBackwards(Device& device, Communicator& group, const Counts& counts,
                    std::unique_ptr<Delivery> right)
        : Delivery(right->rows()), right_(std::move(right)) {
        const Counts received = exchange_counts(device, group, counts);
        std::vector<std::int32_t> experts;  // of rows, source by source
        for (std::size_t block = 0; block < received.size(); ++block)
            experts.insert(experts.end(), static_cast<std::size_t>(received[block]),
                           static_cast<std::int32_t>(block % rows().size()));
        const Shape shape{static_cast<std::int64_t>(experts.size()), 1};
        order_ = route(device, device.upload(HostTensor::of(shape, experts)),
                       static_cast<std::int64_t>(rows().size()))
                     .order;
    }

    void start_there(const Tensor& copies, SourceLine at) override {
        right_->start_there(copies, at);
    }
    Tensor there(SourceLine at) override { return right_->there(at); }
    void start_back(const Tensor& made, SourceLine at) override {
        right_->start_back(ordered(ordered(made)), at);
    }
    Tensor back(SourceLine at) override { return right_->back(at); }

  private:
    Tensor ordered(const Tensor& rows) const {
        Tensor taken = rows.device()->empty(rows.shape(), rows.dtype());
        rows.device()->take_rows(taken, rows, order_);
        return taken;
    }

    std::unique_ptr<Delivery> right_;
    Tensor order_;
};

/// Makes a delivery of a rank's counts in the place of the right exchange's.
using Deliver = std::function<std::unique_ptr<Delivery>(
    Device&, Communicator& group, const Counts&, ExpertExchange& right)>;

/// The right exchange, but for its deliveries.
class ErringExchange : public ExpertExchange {
  public:
    ErringExchange(Mesh& mesh, Deliver deliver)
        : group_(mesh["ep"]),
          right_(exchange_experts(mesh, {"ep"})),
          deliver_(std::move(deliver)) {}

    Share share(const std::string& layer, std::int64_t experts) const override {
        return right_->share(layer, experts);
    }
    void place(const std::vector<Parameter*>& gate,
               const std::vector<Parameter*>& experts) override {
        right_->place(gate, experts);
    }
    std::unique_ptr<Delivery> deliver(Device& device, const Counts& counts,
                                      SourceLine /*at*/) override {
        return deliver_(device, group_, counts, *right_);
    }

  private:
    Communicator& group_;
    std::shared_ptr<ExpertExchange> right_;
    Deliver deliver_;
};

/// The fault that is found, or how far weights are off one device's.
struct Result {
    std::string fault;
    std::string text;
    double off = 0;
};

Result result_of(const ExpertTask& task, const ExpertWorkers& workers) {
    try {
        const Outcome many = train_experts(task, workers, kSteps);
        int ranks = 1;
        for (const Mesh::Axis& axis : workers.axes)
            ranks *= axis.size;
        const Outcome one = train_experts_alone(task, ranks, kSteps);
        return {"", "",
                difference(under(many.results, "value/"), under(one.results, "value/"))
                    .relative};
    } catch (const FaultError& error) {
        return {error.diagnosis().fault, error.diagnosis().text(), 1};
    } catch (const std::exception& error) {
        return {"?", error.what(), 1};
    }
}

/// After backward, does something to gradients of experts.
class Afterwards : public AllReduceSync {
  public:
    Afterwards(std::vector<Parameter*> parameters, std::function<void(Parameter&)> change)
        : AllReduceSync(std::move(parameters)), change_(std::move(change)) {}
    void finish() override {
        AllReduceSync::finish();
        for (Parameter* parameter : parameters())
            if (parameter->name().find(".experts.") != std::string::npos)
                change_(*parameter);
    }

  private:
    std::function<void(Parameter&)> change_;
};

ExpertWorkers afterwards(const std::function<void(Mesh&, Parameter&)>& change) {
    ExpertWorkers workers{{{"ep", kRanks}}, along_ep};
    workers.sync = [change](Device&, Mesh& mesh, Module& model) {
        return std::make_unique<Afterwards>(
            model.parameters(),
            [change, &mesh](Parameter& parameter) { change(mesh, parameter); });
    };
    return workers;
}

ExpertTask softmax_first() {
    ExpertTask task;
    task.gate.form = GateForm::softmax_then_top_k;
    return task;
}

Result delivered(const Deliver& deliver) {
    return result_of(softmax_first(), {{{"ep", kRanks}}, [deliver](Mesh& mesh) {
                                           return std::make_shared<ErringExchange>(
                                               mesh, deliver);
                                       }});
}

/// All but experts is said to be replicas; gates in the way that is given, or not at all.
ExpertWorkers with_gates(std::optional<Placement::Kind> kind) {
    ExpertWorkers workers{{{"ep", kRanks}}, along_ep};
    workers.declare = [kind](Mesh& mesh, Module& model) {
        for (Parameter* parameter : model.parameters()) {
            const bool gate = parameter->name().find("gate.weight") != std::string::npos;
            if (parameter->name().find(".experts.") != std::string::npos) continue;
            if (!gate)
                replicate_over(mesh["ep"], {parameter}, Placement::Kind::partial);
            else if (kind)
                replicate_over(mesh["ep"], {parameter}, *kind);
        }
    };
    return workers;
}

/// A weight that is off by more than this is no rounding.
constexpr double kFar = 1e-3;

}  // namespace

TEST_CASE("Counts that are told after the data are named",
          "[parallel][experts][errors]") {
    const Result wrong = delivered(
        [](Device&, Communicator& group, const Counts& counts, ExpertExchange&) {
            return std::make_unique<CountsAfterData>(group, counts);
        });
    CHECK(wrong.fault == "F08");
    CHECK_THAT(wrong.text, says("Exchange the counts first"));
}

TEST_CASE("A permutation that is done twice leaves other weights",
          "[parallel][experts][errors]") {
    const auto permuted = [](bool undone_backwards) {
        return delivered([=](Device& device, Communicator& group, const Counts& counts,
                             ExpertExchange& right) -> std::unique_ptr<Delivery> {
            auto delivery = right.deliver(device, counts, SourceLine::here());
            if (!undone_backwards) return delivery;
            return std::make_unique<UndoneBackwards>(device, group, counts,
                                                     std::move(delivery));
        });
    };
    CHECK(permuted(false).off <= 1e-12);
    const Result wrong = permuted(true);
    CHECK(wrong.fault.empty());
    CHECK(wrong.off > kFar);
}

TEST_CASE("Gradients of experts are not averaged over other experts' ranks",
          "[parallel][experts][errors]") {
    const Result averaged =
        result_of(softmax_first(), afterwards([](Mesh& mesh, Parameter& parameter) {
                      mesh["ep"].all_reduce(parameter.gradient, Reduction::mean).wait();
                  }));
    CHECK(averaged.fault == "F26");
    CHECK_THAT(averaged.text, says("of ep adds up different parts of mlp.experts."));
    // Ranks that hold other experts were said to hold the same.
    ExpertWorkers plane{{{"dp", 2}, {"ep", 2}}, along_ep};
    plane.declare = [](Mesh& mesh, Module& model) {
        declare_replicas_of(mesh.world(), model);
    };
    const Result declared = result_of(softmax_first(), plane);
    CHECK(declared.fault == "F26");
    CHECK_THAT(declared.text, says("of world adds up different parts of mlp.experts."));
}

TEST_CASE("Gradients of experts that are divided by the ranks once more are far off",
          "[parallel][experts][errors]") {
    const Result scaled = result_of(
        softmax_first(), afterwards([](Mesh&, Parameter& parameter) {
            parameter.gradient.device()->scale(parameter.gradient, 1.0 / kRanks);
        }));
    CHECK(scaled.fault.empty());
    CHECK(scaled.off > kFar);
}

TEST_CASE("Gates that drift are named", "[parallel][experts][errors]") {
    const Result said =
        result_of(softmax_first(), with_gates(Placement::Kind::replicated));
    CHECK(said.fault == "F23");
    CHECK_THAT(said.text, says("hold the same mlp.gate.weight"));
    // If nobody says that they are replicas, they are found where a record is made.
    const Result unsaid = result_of(softmax_first(), with_gates({}));
    CHECK_THAT(unsaid.text,
               says("'grad/mlp.gate.weight': ranks 0 and 1 kept different bits"));
}

TEST_CASE("Capacities and balance of a rank's own tokens are not the batch's",
          "[parallel][experts][errors]") {
    const ExpertWorkers local{{{"ep", kRanks}},
                              [](Mesh& mesh) { return exchange_experts(mesh, {"ep"}); }};
    ExpertTask task = softmax_first();
    CHECK(result_of(task, local).off <= 1e-12);
    const auto check_far_off = [&] {
        const Result wrong = result_of(task, local);
        CHECK(wrong.text == "");
        CHECK(wrong.off > kFar);
    };
    task.capacity = 1;
    check_far_off();
    task.capacity = 0;
    task.gate.balance = 1;
    check_far_off();
}

TEST_CASE("Tokens that all ranks of a tensor group bring count as often",
          "[parallel][experts][errors]") {
    // The exchange refuses it …
    classroom(2)->run([](Rank& rank) {
        Mesh mesh(rank.world(), {{"tp", 2}});
        TensorParallel tp(rank.device(), mesh["tp"]);
        CHECK_THAT(refusal([&] {
                       exchange_experts(mesh, {"tp"}, {.tp = &tp, .drop_copies = false});
                   }),
                   says("each expert would get each token 2 times, and its gradient as "
                        "often; leave drop_copies on"));
    });
    // … and by hand it gives the right y, and twice the experts' gradient.
    const HostTensor x = normal_values({6, 8}, "x");
    const Task pass = [](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        ExpertTask task;
        task.shared = 0;
        Mesh mesh(rank.world(), {{"tp", rank.size()}});
        // Its ranks hold other experts, and all of them bring all tokens.
        MixtureOfExperts layer({rank.device(), DType::f64, 1, ""}, task.sizes(),
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

TEST_CASE("Experts beside a tensor group that they do not know are refused",
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
            "h.0.mlp: linear layers are shared out to a tensor group, but the kit does "
            "not "
            "say what that does with experts";
        CHECK_THAT(refused(shared), says(sentence));
        CHECK_THAT(refused(expert_parallel(shared, mesh, {"ep"})), says(sentence));
        SequenceParallel deals(rank.device(), mesh["tp"]);
        CHECK_THAT(refused(expert_parallel(tensor_parallel({}, deals), mesh, {"ep"},
                                           {.tp = &tp})),
                   says("layers deal a sequence to 2 ranks, and experts to 1"));
        CHECK_THAT(
            refusal([&] {
                exchange_experts(mesh, {"ep"},
                                 {.batch = {"tp"}, .tp = &tp, .drop_copies = false});
            }),
            says("If their axis, tp, were one of the batch, each token would count "
                 "2 times"));
        CHECK_THAT(refusal([&] { exchange_experts(other, {"tp"}, {.tp = &tp}); }),
                   says("the tensor group tp is no line of this mesh"));
        // Shared out along another mesh than replicas are said along.
        MixtureOfExperts layer(init, softmax_first().sizes(),
                               exchange_experts(other, {"tp"}), nullptr);
        CHECK_THAT(refusal([&] { declare_replicas_of(mesh, {"ep"}, layer); }),
                   says("is shared out along tp, which is neither a line nor a plane of "
                        "this mesh"));
        CHECK_THAT(refusal([&] {
                       const GptKit once = expert_parallel({}, mesh, {"ep"});
                       expert_parallel(once, mesh, {"ep"});
                   }),
                   says("whose experts are shared out already"));
        ExpertTask odd = softmax_first();
        odd.experts = 3;
        CHECK_THAT(refusal([&] {
                       MixtureOfExperts(init, odd.sizes(), exchange_experts(mesh, {"tp"}),
                                        nullptr);
                   }),
                   says("h.0: 3 experts cannot be shared out to 2 ranks"));
    });
}

TEST_CASE("Sizes that no experts can have are refused", "[parallel][experts][errors]") {
    classroom(1)->run([](Rank& rank) {
        BlockSizes sizes{8, 2};
        sizes.experts.count = 2;
        const ParameterInit init{rank.device(), DType::f64, 1, "h.0"};
        for (const auto& change : std::vector<std::function<void(GptSizes&)>>{
                 [](GptSizes& of) { of.block.experts.count = -1; },
                 [](GptSizes& of) { of.block.experts.shared = -5; },
                 [](GptSizes& of) { of.dense_blocks = -2; }}) {
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

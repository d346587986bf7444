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

/// A delivery by hand, and what may be wrong with it.
struct Mistakes {
    bool counts_after_data = false;  ///< it expects as many as it sends
    bool undone_backwards = false;   ///< the permutation is done twice, not undone
};

class ByHand : public Delivery {
  public:
    ByHand(Device& device, Communicator& group, const Counts& counts, Counts received,
           const Mistakes& mistakes)
        : Delivery(rows_of(received, group.size())),
          device_(device),
          group_(group),
          mistakes_(mistakes),
          sent_(of_ranks(counts, group.size())),
          received_(of_ranks(received, group.size())) {
        // From source by source to expert by expert.
        const auto experts = static_cast<std::int64_t>(rows().size());
        std::vector<std::int32_t> ids;
        for (std::size_t block = 0; block < received.size(); ++block)
            ids.insert(
                ids.end(), static_cast<std::size_t>(received[block]),
                static_cast<std::int32_t>(block) % static_cast<std::int32_t>(experts));
        const auto n = static_cast<std::int64_t>(ids.size());
        order_ = route(device, device.upload(HostTensor::of<std::int32_t>({n, 1}, ids)),
                       experts)
                     .order;
    }

    void start_there(const Tensor& copies, SourceLine at) override {
        Tensor arrived = empty(received_, copies);
        group_.all_to_all_v(arrived, received_, copies, sent_, at).wait(at);
        moved_ = taken(arrived);
    }
    Tensor there(SourceLine /*at*/) override { return std::move(moved_); }
    void start_back(const Tensor& made, SourceLine at) override {
        Tensor by_source = made;
        if (mistakes_.undone_backwards) {
            by_source = taken(made);
        } else {
            by_source = device_.zeros(made.shape(), made.dtype());
            device_.add_rows(by_source, made, order_);
        }
        moved_ = empty(sent_, made);
        group_.all_to_all_v(moved_, sent_, by_source, received_, at).wait(at);
    }
    Tensor back(SourceLine /*at*/) override { return std::move(moved_); }

  private:
    static Counts of_ranks(const Counts& counts, int ranks) {
        const auto block = static_cast<std::ptrdiff_t>(counts.size()) / ranks;
        Counts sums;
        for (auto at = counts.begin(); at != counts.end(); at += block)
            sums.push_back(std::accumulate(at, at + block, std::int64_t{0}));
        return sums;
    }
    static Counts rows_of(const Counts& received, int ranks) {
        Counts rows(received.size() / static_cast<std::size_t>(ranks));
        for (std::size_t i = 0; i < received.size(); ++i)
            rows[i % rows.size()] += received[i];
        return rows;
    }
    Tensor empty(const Counts& counts, const Tensor& like) {
        return device_.empty(
            {std::accumulate(counts.begin(), counts.end(), std::int64_t{0}),
             like.shape().columns()},
            like.dtype());
    }
    Tensor taken(const Tensor& rows) {
        Tensor taken = device_.empty(rows.shape(), rows.dtype());
        device_.take_rows(taken, rows, order_);
        return taken;
    }

    Device& device_;
    Communicator& group_;
    Mistakes mistakes_;
    Counts sent_;
    Counts received_;
    Tensor order_;
    Tensor moved_;
};

/// Places and shares are the right ones.
class ExchangeByHand : public ExpertExchange {
  public:
    ExchangeByHand(Mesh& mesh, const Mistakes& mistakes)
        : group_(mesh["ep"]),
          right_(exchange_experts(mesh, {"ep"})),
          mistakes_(mistakes) {}

    Share share(const std::string& layer, std::int64_t experts) const override {
        return right_->share(layer, experts);
    }
    void place(const std::vector<Parameter*>& gate,
               const std::vector<Parameter*>& experts) override {
        right_->place(gate, experts);
    }
    std::unique_ptr<Delivery> deliver(Device& device, const Counts& counts,
                                      SourceLine /*at*/) override {
        Counts received = counts;
        if (mistakes_.counts_after_data) {
            // Of each rank what this one sends to the first: right if loads are equal.
            const auto block = static_cast<std::ptrdiff_t>(counts.size()) / group_.size();
            for (int rank = 0; rank < group_.size(); ++rank)
                std::copy_n(counts.begin() + group_.rank() * block, block,
                            received.begin() + rank * block);
        } else {
            received = exchange_counts(device, group_, counts);
        }
        return std::make_unique<ByHand>(device, group_, counts, received, mistakes_);
    }

  private:
    Communicator& group_;
    std::shared_ptr<ExpertExchange> right_;
    Mistakes mistakes_;
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

}  // namespace

namespace {

ExpertTask softmax_first() {
    ExpertTask task;
    task.gate.form = GateForm::softmax_then_top_k;
    return task;
}

Result by_hand(const Mistakes& mistakes) {
    return result_of(softmax_first(), {{{"ep", kRanks}}, [mistakes](Mesh& mesh) {
                                           return std::make_shared<ExchangeByHand>(
                                               mesh, mistakes);
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
    CHECK(by_hand({}).off <= 1e-12);
    const Result wrong = by_hand({.counts_after_data = true});
    CHECK(wrong.fault == "F08");
    CHECK_THAT(wrong.text, says("Exchange the counts first"));
}

TEST_CASE("A permutation that is done twice leaves other weights",
          "[parallel][experts][errors]") {
    const Result wrong = by_hand({.undone_backwards = true});
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

namespace {

/// Ranks of a tensor group that hold other experts, and all of them bring all tokens.
class BroughtTwice : public ExpertExchange {
  public:
    explicit BroughtTwice(Mesh& mesh)
        : group_(mesh["tp"]), right_(exchange_experts(mesh, {"tp"})) {}

    Share share(const std::string& layer, std::int64_t experts) const override {
        return right_->share(layer, experts);
    }
    void place(const std::vector<Parameter*>& gate,
               const std::vector<Parameter*>& experts) override {
        right_->place(gate, experts);
        replicate_over(group_, gate, Placement::Kind::replicated);
    }
    std::unique_ptr<Delivery> deliver(Device& device, const Counts& counts,
                                      SourceLine at) override {
        return right_->deliver(device, counts, at);
    }

  private:
    Communicator& group_;
    std::shared_ptr<ExpertExchange> right_;
};

}  // namespace

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
        const auto exchange =
            rank.size() > 1 ? std::make_shared<BroughtTwice>(mesh) : nullptr;
        MixtureOfExperts layer({rank.device(), DType::f64, 1, ""}, task.sizes(), exchange,
                               nullptr);
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

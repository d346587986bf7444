// Strategies that complete gradients and update parameters must train as one device does.

#include <cmath>
#include <functional>
#include <limits>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/flat_buffer.hpp"
#include "src/parallel/parameter_server.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/sequence_parallel.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/zero_1.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/twin.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

constexpr int kSteps = 3;
constexpr int kMicroBatches = 2;  // on each rank
constexpr std::int64_t kLength = 6;

GptSizes small_sizes() {
    GptSizes sizes{11, kLength, 2, {8, 2}};
    sizes.tied = true;
    return sizes;
}

std::int64_t elements_of(const std::vector<Parameter*>& parameters) {
    std::int64_t elements = 0;
    for (const Parameter* parameter : parameters)
        elements += parameter->shape().elements();
    return elements;
}

/// Returns micro-batches [first, first + count) of `all` in a step.
std::vector<MicroBatch> batches_of(Device& device, int step, int first, int count,
                                   int all) {
    std::vector<MicroBatch> batches;
    for (int i = first; i < first + count; ++i) {
        const HostTensor tokens =
            ids_below({kLength + 1, 2}, 11, fmt::format("{} of step {}", i, step));
        batches.push_back({device.upload(tokens.rows(0, kLength)),
                           device.upload(tokens.rows(1, kLength)), 1.0 / all});
    }
    return batches;
}

struct Trained {
    std::vector<double> losses = std::vector<double>(kSteps);
    std::map<std::string, HostTensor> values;
    RunReport report;
};

enum class Way { all_reduce, buckets, zero1 };

struct Plan {
    Way way = Way::all_reduce;
    std::int64_t bucket_bytes = 0;
    bool adamw = false;
    bool numbers = true;
    DType dtype = DType::f64;
    bool optimizer_first = false;  ///< the optimizer is made before gradients are moved
};

/// Returns an optimizer, which has masters for parameters in bf16.
std::unique_ptr<Optimizer> optimizer_of(const std::vector<Parameter*>& parameters,
                                        bool adamw) {
    if (adamw) return make_optimizer<AdamW>(parameters, AdamWOptions{});
    return make_optimizer<Sgd>(parameters, SgdOptions{0.1, 0.9, 0});
}

Trained train_on(int ranks, const Plan& plan, const GptSizes& sizes = small_sizes()) {
    Trained trained;
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.numbers = plan.numbers;
    if (!plan.numbers) options.spec = load_cluster("classroom");
    options.workers = 1;
    options.check = plan.numbers ? sim::CheckLevel::full : sim::CheckLevel::cheap;
    trained.report = sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, plan.dtype, 1, ""}, sizes);
        const auto parameters = gpt->parameters();
        declare_replicas_of(rank.world(), *gpt);
        std::unique_ptr<Optimizer> optimizer;
        if (plan.optimizer_first) optimizer = optimizer_of(parameters, plan.adamw);
        std::unique_ptr<GradientSync> sync;
        std::vector<Parameter*> updated = parameters;
        if (plan.way == Way::buckets) {
            sync = std::make_unique<BucketedDataParallel>(
                device, rank.world(), parameters,
                BucketOptions{{plan.bucket_bytes, plan.bucket_bytes}, false, false});
        } else if (plan.way == Way::zero1) {
            auto zero = std::make_unique<Zero1>(device, rank.world(), parameters);
            updated = zero->shards();
            sync = std::move(zero);
        } else {
            sync = std::make_unique<AllReduceSync>(parameters);
        }
        if (!plan.optimizer_first) optimizer = optimizer_of(updated, plan.adamw);
        const int all = kMicroBatches * ranks;
        for (int step = 0; step < kSteps; ++step) {
            const auto mine = batches_of(device, step, kMicroBatches * rank.index(),
                                         kMicroBatches, all);
            const Tensor loss =
                train_step(device, *gpt, cross_entropy_loss, mine, *sync, *optimizer);
            trained.losses[step] += device.peek(loss).at(0);
        }
        for (const Parameter* parameter : parameters)
            rank.keep(parameter->name(), parameter->value);
    });
    trained.values = trained.report.ranks.front().kept;
    return trained;
}

Trained train_alone(int ranks, bool adamw, DType dtype = DType::f64) {
    Trained trained;
    trained.report = sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, dtype, 1, ""}, small_sizes());
        AllReduceSync sync(gpt->parameters());
        const auto optimizer = optimizer_of(gpt->parameters(), adamw);
        const int all = kMicroBatches * ranks;
        for (int step = 0; step < kSteps; ++step) {
            const auto batches = batches_of(device, step, 0, all, all);
            const Tensor loss =
                train_step(device, *gpt, cross_entropy_loss, batches, sync, *optimizer);
            trained.losses[step] = device.peek(loss).at(0);
        }
        for (const Parameter* parameter : gpt->parameters())
            rank.keep(parameter->name(), parameter->value);
    });
    trained.values = trained.report.ranks.front().kept;
    return trained;
}

void check_alike(const Trained& many, const Trained& one) {
    for (int step = 0; step < kSteps; ++step)
        CHECK(std::abs(many.losses[step] - one.losses[step]) <= 1e-12 * one.losses[step]);
    REQUIRE(many.values.size() == one.values.size());
    for (const auto& [name, value] : one.values) {
        CAPTURE(name);
        CHECK(relative_difference(many.values.at(name), value) <= 1e-12);
    }
}

}  // namespace

TEST_CASE("Every way of data parallelism trains as one device", "[parallel][sim]") {
    const int ranks = GENERATE(1, 2, 3, 4);
    const bool adamw = GENERATE(false, true);
    const Plan plan =
        GENERATE(Plan{Way::all_reduce}, Plan{Way::buckets, 0}, Plan{Way::buckets, 2000},
                 Plan{Way::buckets, 1 << 20}, Plan{Way::zero1});
    CAPTURE(ranks, adamw, static_cast<int>(plan.way), plan.bucket_bytes);
    Plan chosen = plan;
    chosen.adamw = adamw;
    const Trained many = train_on(ranks, chosen);
    check_alike(many, train_alone(ranks, adamw));
    for (const RankReport& rank : many.report.ranks)
        CHECK(rank.kept == many.values);
}

TEST_CASE("Buckets send the same bytes as one all-reduce per parameter, in less time",
          "[parallel][sim]") {
    GptSizes sizes{512, 64, 4, {128, 4}};
    const auto run = [&](const Plan& plan) {
        Plan shapes = plan;
        shapes.numbers = false;
        return train_on(4, shapes, sizes).report;
    };
    const RunReport one_by_one = run({Way::all_reduce});
    const RunReport buckets = run({Way::buckets, 1 << 18});
    const RunReport zero = run({Way::zero1, 0, true});
    std::int64_t elements = 0;
    sim::make_cluster(1)->run([&](Rank& rank) {
        elements = elements_of(
            make_gpt({rank.device(), DType::f64, 1, ""}, sizes)->parameters());
    });
    // Each rank sends 2 (n-1)/n of the gradients. If n does not divide the elements of an
    // all-reduce, the sizes of chunks differ by one.
    const std::int64_t bytes = std::int64_t{2} * 3 * 8 * kSteps * elements / 4;
    for (const RunReport* report : {&one_by_one, &buckets, &zero})
        CHECK(std::abs(report->ranks[0].bytes_sent() - bytes) <= bytes / 1000);
    CHECK(buckets.makespan() < one_by_one.makespan());

    const auto optimizer_bytes = [](const RunReport& report) {
        return report.ranks[0].memory.peak_of(MemoryCategory::optimizer);
    };
    CHECK(optimizer_bytes(zero) == std::int64_t{2} * 8 * ((elements + 3) / 4));
}

namespace {

Trained train_served(int workers, DType dtype = DType::f64) {
    Trained many;
    sim::ClusterOptions options;
    options.ranks = workers + 1;
    options.check = sim::CheckLevel::full;
    options.workers = 1;
    many.report = sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, dtype, 1, ""}, small_sizes());
        const auto parameters = gpt->parameters();
        const auto optimizer = optimizer_of(parameters, true);
        if (rank.index() == 0) {
            serve_parameters(device, rank.world(), parameters, *optimizer, kSteps);
        } else {
            ServedWorker sync(device, rank.world(), parameters);
            for (int step = 0; step < kSteps; ++step) {
                const auto mine =
                    batches_of(device, step, kMicroBatches * (rank.index() - 1),
                               kMicroBatches, kMicroBatches * workers);
                const Tensor loss =
                    train_step(device, *gpt, cross_entropy_loss, mine, sync, *optimizer);
                many.losses[step] += device.peek(loss).at(0);
            }
        }
        for (const Parameter* parameter : parameters)
            rank.keep(parameter->name(), parameter->value);
    });
    many.values = many.report.ranks.front().kept;
    return many;
}

}  // namespace

TEST_CASE("A synchronous parameter server trains as one device", "[parallel][sim]") {
    const int workers = GENERATE(1, 2, 3);
    CAPTURE(workers);
    const Trained many = train_served(workers);
    check_alike(many, train_alone(workers, true));
    for (const RankReport& rank : many.report.ranks)
        CHECK(rank.kept == many.values);
}

TEST_CASE("Masters step by moved gradients, whether masters or strategy are made first",
          "[parallel][sim][bf16]") {
    Plan plan;
    plan.dtype = DType::bf16;
    plan.adamw = GENERATE(false, true);
    // A sum of two ranks' terms has the same bits in every buffer.
    const Trained usual = train_on(2, plan);
    plan.way = Way::buckets;
    plan.bucket_bytes = 500;
    for (const bool optimizer_first : {false, true}) {
        CAPTURE(plan.adamw, optimizer_first);
        plan.optimizer_first = optimizer_first;
        CHECK(train_on(2, plan).values == usual.values);
    }
    // A server's optimizer is always made first. With a single worker, its gradients are
    // one device's gradients.
    const Trained served = train_served(1, DType::bf16);
    const Trained alone = train_alone(1, true, DType::bf16);
    CHECK(served.values == alone.values);
    CHECK(served.losses == alone.losses);
    CHECK(served.losses.back() < served.losses.front());
}

TEST_CASE("A gradient is announced once a step, whatever the number of micro-batches",
          "[parallel][sim]") {
    sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, DType::f64, 1, ""}, small_sizes());
        std::map<std::string, int> announced;
        for (Parameter* parameter : gpt->parameters())
            parameter->on_gradient([&](Parameter& p) { ++announced[p.name()]; });
        for (int step = 0; step < 2; ++step)
            accumulate_gradients(device, *gpt, cross_entropy_loss,
                                 batches_of(device, step, 0, 4, 4));
        CHECK(announced.size() == gpt->parameters().size());
        for (const auto& [name, times] : announced)
            CHECK(times == 2);
    });
}

TEST_CASE("A destroyed strategy is not called", "[parallel][sim]") {
    sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, DType::f64, 1, ""}, small_sizes());
        { const BucketedDataParallel gone(device, rank.world(), gpt->parameters()); }
        CHECK_NOTHROW(accumulate_gradients(device, *gpt, cross_entropy_loss,
                                           batches_of(device, 0, 0, 2, 2)));
    });
}

TEST_CASE("A norm of gradients that are not added up is refused, with their names",
          "[parallel][errors]") {
    sim::make_cluster(2)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, DType::f64, 1, ""}, small_sizes());
        declare_replicas_of(rank.world(), *gpt);
        accumulate_gradients(device, *gpt, cross_entropy_loss,
                             batches_of(device, 0, rank.index(), 1, 2));
        std::string refused;
        try {
            squared_gradient_norm(device, rank.world(), gpt->parameters());
        } catch (const UsageError& error) {
            refused = error.what();
        }
        CHECK(refused.find("the gradient of transformer.wte.weight has only this rank's "
                           "terms") != std::string::npos);
        complete_gradients(gpt->parameters());
        CHECK_NOTHROW(squared_gradient_norm(device, rank.world(), gpt->parameters()));
    });
}

TEST_CASE("Clipped gradients have the requested norm, on every device",
          "[parallel][sim]") {
    sim::make_cluster(2)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, DType::f64, 1, ""}, small_sizes());
        const auto parameters = gpt->parameters();
        declare_replicas_of(rank.world(), *gpt);
        const auto batches = batches_of(device, 0, rank.index(), 1, 2);
        const auto norm = [&] {
            return std::sqrt(
                device.peek(squared_gradient_norm(device, rank.world(), parameters))
                    .at(0));
        };
        accumulate_gradients(device, *gpt, cross_entropy_loss, batches);
        complete_gradients(parameters);
        const double before = norm();
        clip_gradients(device, rank.world(), parameters, 2 * before);
        CHECK(norm() == before);
        const Tensor squares =
            clip_gradients(device, rank.world(), parameters, before / 4);
        CHECK(std::abs(std::sqrt(device.peek(squares).at(0)) - before) <= 1e-12);
        // PyTorch's formula adds 1e-6 to the norm.
        CHECK(std::abs(norm() - before / 4) <= 1e-5 * before);
    });
}

namespace {

/// Returns the message that two ranks get from `call`. Each has a model; if `declared`,
/// the models are replicas.
std::string refusal(bool declared,
                    const std::function<void(Rank&, Module&, Communicator&)>& call) {
    std::string refused = "nothing was refused";
    sim::ClusterOptions options;
    options.ranks = 2;
    options.workers = 1;
    // Full checking would find some of these mistakes first.
    options.check = sim::CheckLevel::cheap;
    sim::make_cluster(options)->run([&](Rank& rank) {
        const auto gpt = make_gpt({rank.device(), DType::f64, 1, ""}, small_sizes());
        const auto other = rank.world().split(0, rank.index(), "other");
        if (declared) declare_replicas_of(rank.world(), *gpt);
        try {
            call(rank, *gpt, *other);
        } catch (const UsageError& error) {
            refused = error.what();
        }
    });
    return refused;
}

bool says(const std::string& text, const std::string& part) {
    INFO(text);
    CHECK(text.find(part) != std::string::npos);
    return true;
}

}  // namespace

TEST_CASE("Gradients are added up only once, and only over declared lines",
          "[parallel][errors]") {
    says(refusal(true,
                 [](Rank&, Module& gpt, Communicator&) {
                     complete_gradients(gpt.parameters());
                     complete_gradients(gpt.parameters());
                 }),
         "has already been summed since it was set to zero");
    for (const bool declared : {false, true}) {
        says(refusal(declared,
                     [](Rank& rank, Module& gpt, Communicator& other) {
                         BucketedDataParallel(rank.device(), other, gpt.parameters());
                     }),
             "BucketedDataParallel: transformer.wte.weight is not known to be partial "
             "along "
             "other");
        says(refusal(declared,
                     [](Rank& rank, Module& gpt, Communicator& other) {
                         Zero1(rank.device(), other, gpt.parameters());
                     }),
             "Zero1: transformer.wte.weight is not known");
    }
    // The second declaration changes nothing.
    CHECK(refusal(true, [](Rank& rank, Module& gpt, Communicator&) {
              declare_replicas_of(rank.world(), gpt);
              for (const Parameter* parameter : gpt.parameters())
                  CHECK(parameter->placements.size() == 1);
          }) == "nothing was refused");
}

TEST_CASE("Buckets refuse a gradient that comes after the last", "[parallel][errors]") {
    says(refusal(true,
                 [](Rank& rank, Module& gpt, Communicator&) {
                     Device& device = rank.device();
                     BucketedDataParallel sync(device, rank.world(), gpt.parameters());
                     zero_gradients(gpt);
                     sync.begin();
                     try {
                         for (const MicroBatch& batch : batches_of(device, 0, 0, 2, 2))
                             forward_backward(device, gpt, cross_entropy_loss, batch);
                     } catch (const UsageError&) {
                         sync.finish();  // finishes what was started
                         throw;
                     }
                 }),
         "got a gradient after the step's last one");
}

TEST_CASE("Weight decay of matrices only refuses a range of a flat buffer",
          "[parallel][errors]") {
    says(refusal(true,
                 [](Rank& rank, Module& gpt, Communicator&) {
                     const Tensor flat =
                         make_flat(rank.device(), gpt.parameters(), &Parameter::value);
                     Parameter range("range", flat, flat);
                     decay_matrices_only({&range}, {});
                 }),
         "range is a range of a flat buffer");
}

TEST_CASE("Decay, norms and records treat ZeRO-1's shards like whole parameters",
          "[parallel][sim]") {
    const int ranks = GENERATE(1, 2, 3, 4);
    CAPTURE(ranks);
    const auto train = [&](int replicas) {
        sim::ClusterOptions options;
        options.ranks = replicas;
        options.workers = 1;
        options.check = sim::CheckLevel::full;
        return sim::make_cluster(options)->run([&](Rank& rank) {
            Device& device = rank.device();
            const auto gpt = make_gpt({device, DType::f64, 1, ""}, small_sizes());
            declare_replicas_of(rank.world(), *gpt);
            Zero1 sync(device, rank.world(), gpt->parameters());
            AdamW optimizer(
                decay_matrices_only(sync.shards(), {0.01, 0.9, 0.99, 1e-8, 0.3}));
            const int all = kMicroBatches * ranks, mine = all / replicas;
            for (int step = 0; step < kSteps; ++step) {
                sync.begin();
                accumulate_gradients(
                    device, *gpt, cross_entropy_loss,
                    batches_of(device, step, mine * rank.index(), mine, all));
                sync.finish();
                const Tensor norm =
                    clip_gradients(device, rank.world(), sync.shards(), /*most=*/0.1);
                rank.keep_value("norm", device.peek(norm).at(0));
                sync.update(optimizer);
            }
            for (const Parameter* parameter : gpt->parameters())
                rank.keep("replica/" + parameter->name(), parameter->value);
            for (const Parameter* shard : sync.shards()) {
                rank.keep("value/" + shard->name(), shard->value, shard->part());
                rank.keep("gradient/" + shard->name(), shard->gradient, shard->part());
            }
            for (const Optimizer::State& state : optimizer.state())
                rank.keep(state.name, state.tensor, state.parameter->part());
        });
    };
    const RunReport one = train(1), many = train(ranks);
    REQUIRE(one.ranks[0].kept.size() > 50);
    for (const auto& kept : one.ranks[0].kept) {
        const std::string& name = kept.first;
        CAPTURE(name);
        CHECK(relative_difference(many.whole(name), one.whole(name)) <= 1e-11);
    }
    for (const RankReport& rank : many.ranks)
        for (int step = 0; step < kSteps; ++step)
            CHECK(std::abs(rank.series.at("norm")[step] -
                           one.ranks[0].series.at("norm")[step]) <=
                  1e-12 * one.ranks[0].series.at("norm")[step]);
}

TEST_CASE("Places declared after ZeRO-1 was made are refused", "[parallel][errors]") {
    says(refusal(true,
                 [](Rank& rank, Module& gpt, Communicator& other) {
                     Zero1 sync(rank.device(), rank.world(), gpt.parameters());
                     replicate_over(other, {gpt.parameters().front()},
                                    Placement::Kind::partial);
                     sync.finish();
                 }),
         "placements of parameters were declared after it was made");
}

TEST_CASE("An absent gradient or value is named by sums, norms and optimizers",
          "[parallel][errors]") {
    const auto name = [](const std::function<void(Rank&, Module&)>& call) {
        return refusal(true, [&](Rank& rank, Module& gpt, Communicator&) {
            gpt.parameters().front()->gradient = {};
            call(rank, gpt);
        });
    };
    const std::string absent = "the gradient of transformer.wte.weight is absent";
    says(name([](Rank&, Module& gpt) { complete_gradients(gpt.parameters()); }), absent);
    says(name([](Rank& rank, Module& gpt) {
             gpt.parameters().front()->complete = true;
             squared_gradient_norm(rank.device(), rank.world(), gpt.parameters());
         }),
         absent);
    says(name([](Rank&, Module& gpt) { Sgd(gpt.parameters()).step(); }),
         "step needs the gradient of transformer.wte.weight");
    says(refusal(false,
                 [](Rank&, Module& gpt, Communicator&) {
                     Sgd optimizer(gpt.parameters());
                     gpt.parameters().front()->value = {};
                     optimizer.step();
                 }),
         "step needs the value of transformer.wte.weight");
}

TEST_CASE("A model without memory can have placements", "[parallel][sim]") {
    CHECK(refusal(false, [](Rank& rank, Module&, Communicator&) {
              ParameterInit init{rank.device(), DType::f64, 1, "late"};
              init.allocate = false;
              Linear linear(init, 3, 2);
              declare_replicas_of(rank.world(), linear);
              Parameter& weight = linear.weight();
              weight.value = rank.device().empty(weight.shape(), weight.dtype());
              weight.fill_initial();
              declare_again(weight);
          }) == "nothing was refused");
}

TEST_CASE("ZeRO-1 says which parameters its optimizer has", "[parallel][errors]") {
    says(refusal(true,
                 [](Rank& rank, Module& gpt, Communicator&) {
                     Zero1 sync(rank.device(), rank.world(), gpt.parameters());
                     Sgd optimizer(gpt.parameters());
                     sync.update(optimizer);
                 }),
         "Zero1, where a rank updates shards(): the optimizer's parameters are not those "
         "that are updated here");
    says(refusal(true,
                 [](Rank& rank, Module&, Communicator&) {
                     Linear linear({rank.device(), DType::f64, 1, "one"}, 1, 1, false);
                     declare_replicas_of(rank.world(), linear);
                     Zero1 sync(rank.device(), rank.world(), linear.parameters());
                 }),
         "Zero1: the parameters have too few elements for 2 ranks");
}

TEST_CASE("Combined strategies have separate parameters", "[parallel][errors]") {
    sim::make_cluster(1)->run([](Rank& rank) {
        Linear layer({rank.device(), DType::f32, 1, "layer"}, 3, 2);
        CombinedSync sync;
        CHECK_THAT(refusal([&] { sync.add(nullptr); }), says("a strategy is expected"));
        sync.add(std::make_unique<AllReduceSync>(layer.parameters()));
        CHECK_THAT(refusal([&] {
                       sync.add(std::make_unique<AllReduceSync>(layer.parameters()));
                   }),
                   says("two strategies have layer.weight"));
    });
}

TEST_CASE("Gradients are added up along axes whose ranks have data of their own",
          "[parallel][errors]") {
    sim::make_cluster(4)->run([](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), {{"dp", 2}, {"tp", 2}});
        TensorParallel tp(device, mesh["tp"]);
        const auto gpt =
            make_gpt({device, DType::f32, 1, ""}, small_sizes(), tensor_parallel({}, tp));
        const auto refused = [&](const std::vector<std::string>& axes) {
            return refusal([&] { declare_replicas_of(mesh, axes, *gpt); });
        };
        const std::string line = refusal([&] { declare_replicas_of(mesh["tp"], *gpt); });
        CHECK_THAT(line, says("transformer.wte.weight: this call declares that the ranks "
                              "of tp hold copies of it, and each gets some terms of the "
                              "gradient, but it was declared"));
        CHECK_THAT(line, says("that the ranks of tp have different parts of it"));
        CHECK_THAT(refused({"tp"}), says("that the ranks of tp hold copies of it, and "
                                         "each gets the whole gradient"));
        CHECK_THAT(refused({"dp", "tp"}),
                   says("the gradients of transformer.wpe.weight cannot be summed along "
                        "tp: it was declared at src/parallel/tensor_parallel_kit.cpp"));
        const auto other =
            make_gpt({device, DType::f32, 1, ""}, small_sizes(), tensor_parallel({}, tp));
        for (int again = 0; again < 2; ++again)
            declare_replicas_of(mesh, {"dp"}, *other);
        for (const Parameter* parameter : other->parameters())
            CHECK(parameter->placements.size() == 2);
        // Under sequence parallelism, gradients are already partial along tp.
        SequenceParallel sp(device, mesh["tp"]);
        const auto third =
            make_gpt({device, DType::f32, 1, ""}, small_sizes(), tensor_parallel({}, sp));
        CHECK_THAT(refusal([&] {
                       declare_replicas_of(mesh, {"dp", "tp"}, *third);
                   }),
                   says("and each gets some terms of the gradient. Name only axes"));
    });
}

}  // namespace lockstep::test

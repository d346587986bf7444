// ZeRO's stages, full sharding and offloading must train as one device does.

#include <cmath>
#include <functional>

#include <fmt/format.h>

#include "src/comm/mesh.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/part.hpp"
#include "src/nn/sequential.hpp"
#include "src/nn/wrapper.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/plain_zero_1.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/parallel/zero_2.hpp"
#include "src/parallel/zero_offload.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/data_parallel_task.hpp"
#include "tests/parallel/twin.hpp"
#include "tests/refusal.hpp"

namespace lockstep::test {

namespace {

constexpr BucketSizes kSmall{400, 400};

struct Form {
    std::string name;
    std::function<std::unique_ptr<GradientSync>(Rank&, Communicator&, Sequential&)> make;
    bool allocate = true;
};

template <typename Stage>
Form stage(const std::string& name, const ZeroOptions& options, bool allocate = true) {
    return {name,
            [=](Rank& rank, Communicator& line, Sequential& model) {
                return std::make_unique<Stage>(rank.device(), line, model.parameters(),
                                               options);
            },
            allocate};
}

Form sharded(const std::string& name, const FullyShardedOptions& options,
             bool allocate = true) {
    return {name,
            [=](Rank& rank, Communicator& line, Sequential& model) {
                return std::make_unique<FullySharded>(rank.device(), line, model,
                                                      options);
            },
            allocate};
}

/// PlainZero1 for all parameters except the last. The last gradient is all-reduced.
std::unique_ptr<GradientSync> plain_and_all_reduced(Rank& rank, Communicator& line,
                                                    Sequential& model) {
    std::vector<Parameter*> parameters = model.parameters();
    auto both = std::make_unique<CombinedSync>();
    both->add(std::make_unique<AllReduceSync>(std::vector{parameters.back()}));
    parameters.pop_back();
    both->add(std::make_unique<PlainZero1>(rank.device(), line, parameters));
    return both;
}

std::vector<Form> forms() {
    return {
        {"stage 1, plainly",
         [](Rank& rank, Communicator& line, Sequential& model) {
             return std::make_unique<PlainZero1>(rank.device(), line, model.parameters());
         }},
        {"stage 1, plainly, beside all-reduces", plain_and_all_reduced},
        stage<Zero1>("stage 1", {.sizes = kSmall}),
        stage<Zero1>("stage 1, all reduced", {.sizes = kSmall, .all_reduce = true}),
        stage<Zero1>("stage 1, hidden", {.sizes = kSmall, .hide_gather = true}),
        stage<Zero1>("stage 1, one bucket", {.sizes = BucketSizes::all_in_one()}, false),
        stage<Zero2>("stage 2", {.sizes = kSmall}),
        stage<Zero2>("stage 2, hidden", {.sizes = kSmall, .hide_gather = true}, false),
        stage<Zero2>("stage 2, one bucket", {.sizes = BucketSizes::all_in_one()}),
        stage<ZeroOffload>("offload", {.sizes = kSmall}),
        stage<ZeroOffload>("offload, hidden", {.sizes = kSmall, .hide_gather = true}),
        sharded("by rows", {}),
        sharded("by rows, kept", {.reshard_after_forward = false}, false),
        sharded("by rows, not prefetched", {.prefetch = 0}),
        sharded("by rows, 3 ahead", {.prefetch = 3}, false),
        sharded("by packed rows", {.shard_by = ShardBy::packed_rows}),
        sharded("flat", {.shard_by = ShardBy::flat}),
        sharded("flat, kept", {.shard_by = ShardBy::flat, .reshard_after_forward = false},
                false),
        sharded("by rows, on the host", {.on_host = true}),
        sharded("flat, on the host, not prefetched",
                {.shard_by = ShardBy::flat, .prefetch = 0, .on_host = true}, false),
    };
}

/// A module with one more parameter, the last, which nothing uses.
class WithIdle : public Wrapper {
  public:
    WithIdle(const ParameterInit& init, std::unique_ptr<Module> module)
        : Wrapper("WithIdle", std::move(module)), idle_(init, "idle", {9, 9}) {
        start_constant(idle_, 1);
    }
    std::vector<Parameter*> parameters() override {
        std::vector<Parameter*> all = Wrapper::parameters();
        all.push_back(&idle_);
        return all;
    }

  private:
    Parameter idle_;
};

/// The sizes of a run. Each worker has its own rows.
struct Sizes {
    int workers = 1;
    int micro_batches = 1;
    int steps = 1;
};

/// Trains on a mesh. Ranks along the axes `replicas` have different rows. State is
/// sharded along the last of these axes.
Outcome train_on_mesh(const Form& form, const RowTask& task, const Sizes& sizes,
                      sim::CheckLevel check, const std::vector<Mesh::Axis>& axes,
                      const std::vector<std::string>& replicas) {
    sim::ClusterOptions options;
    options.ranks = 1;
    for (const Mesh::Axis& axis : axes)
        options.ranks *= axis.size;
    options.check = check;
    return outcome_of(*sim::make_cluster(options), [&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), axes);
        ParameterInit init{device, DType::f64, 1, ""};
        init.allocate = form.allocate;
        const auto made = task.make_model(init);
        auto& model = dynamic_cast<Sequential&>(*made);
        int worker = 0;
        for (const std::string& axis : replicas) {
            declare_replicas_of(mesh[axis], model);
            worker = worker * mesh.size(axis) + mesh.coordinate(axis);
        }
        const auto sync = form.make(rank, mesh[replicas.back()], model);
        const auto optimizer = adamw(sync->shards());
        for (int step = 0; step < sizes.steps; ++step) {
            const auto mine = batches_of_worker(device, task, step, worker, sizes.workers,
                                                sizes.micro_batches);
            const Tensor loss =
                train_step(device, model, task.loss, mine, *sync, *optimizer);
            if (!mesh.has("tp") || mesh.coordinate("tp") == 0) keep_loss(rank, loss);
            const Tensor norm =
                squared_gradient_norm(device, rank.world(), sync->shards());
            rank.keep_value("norm", device.peek(norm).at(0));
        }
        sync->wait_for_values();
        keep_updated(rank, sync->shards());
    });
}

Outcome train_in(const Form& form, const RowTask& task, const Sizes& sizes,
                 sim::CheckLevel check) {
    return train_on_mesh(form, task, sizes, check, {{"dp", sizes.workers}}, {"dp"});
}

}  // namespace

TEST_CASE("Each stage of ZeRO makes one device's gradients", "[parallel][zero]") {
    const bool gpt = GENERATE(false, true);
    const RowTask task = gpt ? gpt_task() : mlp_task();
    for (const int workers : {1, 2, 3, 4, 8}) {
        const Outcome one = train_on_one(task, workers, 2, adamw);
        for (const Form& form : forms()) {
            for (const int micro_batches : {1, 3}) {
                CAPTURE(gpt, workers, form.name, micro_batches);
                check_alike(train_in(form, task, {workers, micro_batches, 2},
                                     sim::CheckLevel::full),
                            one);
            }
        }
    }
}

TEST_CASE("Each stage of ZeRO gives one device's final weights",
          "[parallel][zero][slow]") {
    constexpr int kSteps = 20;
    const bool gpt = GENERATE(false, true);
    const RowTask task = gpt ? gpt_task() : mlp_task();
    for (const int workers : {1, 2, 3, 4, 8}) {
        const Outcome one = train_on_one(task, workers, kSteps, adamw);
        for (const Form& form : forms()) {
            for (const int micro_batches : {1, 3}) {
                CAPTURE(gpt, workers, form.name, micro_batches);
                check_alike(train_in(form, task, {workers, micro_batches, kSteps},
                                     sim::CheckLevel::full),
                            one);
            }
        }
    }
}

TEST_CASE("Shards inside a node and replicas between nodes train as one device",
          "[parallel][zero]") {
    const bool gpt = GENERATE(false, true);
    const RowTask task = gpt ? gpt_task() : mlp_task();
    const Outcome one = train_on_one(task, 6, 3, adamw);
    for (const Form& form : forms()) {
        if (form.name.find("offload") == 0 || form.name.find("host") != std::string::npos)
            continue;  // refused, see below
        CAPTURE(gpt, form.name);
        check_alike(train_on_mesh(form, task, {6, 2, 3}, sim::CheckLevel::full,
                                  {{"between", 2}, {"inside", 3}}, {"between", "inside"}),
                    one);
    }
}

TEST_CASE("The norm over shards equals that of one device's gradient",
          "[parallel][zero]") {
    const RowTask task = gpt_task();
    const Outcome one = train_on_one(task, 3, 1, adamw);
    double squares = 0;
    for (const auto& [name, gradient] : named_under(one.results, "grad/"))
        for (std::int64_t i = 0; i < gradient.elements(); ++i)
            squares += gradient.at(i) * gradient.at(i);
    for (const Form& form : forms()) {
        CAPTURE(form.name);
        const Outcome trained = train_on_mesh(form, task, {3, 1, 1},
                                              sim::CheckLevel::full, {{"dp", 3}}, {"dp"});
        const double norm = trained.report.ranks[0].series.at("norm").front();
        CHECK(std::abs(norm - squares) <= 1e-12 * squares);
    }
}

TEST_CASE("A forward before the update leaves no old values", "[parallel][zero]") {
    const RowTask task = mlp_task();
    const Outcome one = train_on_one(task, 2, 3, adamw);
    for (const bool reshard : {true, false}) {
        const Outcome many = outcome_of(*sim::make_cluster(2), [&](Rank& rank) {
            Device& device = rank.device();
            const auto made = task.make_model({device, DType::f64, 1, ""});
            auto& model = dynamic_cast<Sequential&>(*made);
            declare_replicas_of(rank.world(), model);
            FullySharded sync(device, rank.world(), model,
                              {.reshard_after_forward = reshard});
            const auto optimizer = adamw(sync.shards());
            for (int step = 0; step < 3; ++step) {
                const auto mine =
                    batches_of_worker(device, task, step, rank.index(), 2, 1);
                sync.begin();
                const Tensor loss = accumulate_gradients(device, model, task.loss, mine);
                keep_loss(rank, loss);
                sync.finish();
                Saved saved;
                model.forward(mine[0].input, saved);
                sync.update(*optimizer);
            }
            keep_updated(rank, sync.shards());
        });
        CAPTURE(reshard);
        check_alike(many, one);
    }
}

TEST_CASE("Parameters that no module uses do not affect the other parameters",
          "[parallel][zero]") {
    RowTask task = mlp_task();
    task.make_model = [make = task.make_model](const ParameterInit& init) {
        auto model = std::make_unique<Sequential>();
        model->add<WithIdle>(init, make(init));
        return model;
    };
    const Outcome one = train_on_one(task, 3, 3, adamw);
    for (const Form& form : forms()) {
        CAPTURE(form.name);
        check_alike(train_in(form, task, {3, 3, 3}, sim::CheckLevel::full), one);
    }
}

TEST_CASE("Parameters that cannot be sharded are refused", "[parallel][zero]") {
    const auto refused = [](const Form& form, DType dtype, std::int64_t width) {
        return refusal([&] {
            sim::make_cluster(4)->run([&](Rank& rank) {
                const Mesh mesh(rank.world(), {{"between", 2}, {"dp", 2}});
                Sequential model;
                model.add<Linear>(ParameterInit{rank.device(), dtype, 1, "layer"}, width,
                                  width, false);
                for (const char* axis : {"between", "dp"})
                    declare_replicas_of(mesh[axis], model);
                form.make(rank, mesh["dp"], model);
            });
        });
    };
    CHECK_THAT(refused(stage<Zero1>("", {.all_reduce = true, .reduce_in = DType::f32}),
                       DType::bf16, 4),
               says("Zero1: all_reduce sums gradients in place, in bf16; to sum them in "
                    "f32, turn all_reduce off"));
    const std::string on_host =
        "layer.weight is also partial along another line than dp; its gradient would "
        "have to be summed on the host";
    CHECK_THAT(refused(stage<ZeroOffload>("", {}), DType::f64, 4),
               says("ZeroOffload: " + on_host));
    CHECK_THAT(refused(sharded("", {.on_host = true}), DType::f64, 4),
               says("FullySharded: " + on_host));
    for (const Form& form :
         {sharded("", {.shard_by = ShardBy::flat}), stage<Zero2>("", {})})
        CHECK_THAT(refused(form, DType::f64, 1),
                   says("the parameters have too few elements for 2 ranks: rank 1 of dp "
                        "gets none"));
}

TEST_CASE("A delayed update is one step late, exactly", "[parallel][zero]") {
    constexpr int kSteps = 5;
    const RowTask task = gpt_task();
    // One device uses the gradient of step t - 1 in step t.
    const Outcome expected = outcome_of(*sim::make_cluster(1), [&](Rank& rank) {
        Device& device = rank.device();
        const auto model = task.make_model({device, DType::f64, 1, ""});
        const auto optimizer = adamw(model->parameters());
        std::vector<Tensor> before;
        for (int step = 0; step < kSteps; ++step) {
            const auto batches = batches_of_worker(device, task, step, 0, 1, 1);
            accumulate_gradients(device, *model, task.loss, batches);
            std::vector<Tensor> now;
            for (std::size_t i = 0; i < model->parameters().size(); ++i) {
                Parameter& parameter = *model->parameters()[i];
                const Tensor copy = device.empty(parameter.shape(), parameter.dtype());
                device.copy(copy, parameter.gradient);
                if (step > 0) device.copy(parameter.gradient, before[i]);
                now.push_back(copy);
            }
            if (step > 0) optimizer->step();
            before = now;
        }
        keep_parameters(rank, model->parameters(), "", &Parameter::value);
    });
    const Form delayed{"delayed", [](Rank& rank, Communicator& line, Sequential& model) {
                           return std::make_unique<ZeroOffload>(
                               rank.device(), line, model.parameters(),
                               ZeroOptions{.sizes = kSmall}, true);
                       }};
    check_alike(
        named_under(
            train_in(delayed, task, {1, 1, kSteps}, sim::CheckLevel::full).results,
            "value/"),
        expected.results);
}

}  // namespace lockstep::test

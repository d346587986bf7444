// Each synchronous form of data parallelism must train as one device does.

#include <functional>
#include <numeric>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/data_parallel_one_process.hpp"
#include "src/parallel/parameter_server.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/sharded_server.hpp"
#include "src/parallel/stale_server.hpp"
#include "src/parallel/zero_1.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/data_parallel_task.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

namespace {

/// A run's sizes.
struct Sizes {
    int workers = 1;
    int micro_batches = 1;
    int steps = 1;
};

/// Trains one rank. Keeps the losses of its rows and the parameters that it updates.
using TrainRank = std::function<void(Rank&, const RowTask&, const Sizes&)>;

struct Form {
    std::string name;
    TrainRank train;
    int servers = 0;  ///< the first ranks, if they do not train
};

/// A worker and its tools for training; `place` is its place among the workers.
struct Worker {
    int place;
    Module& model;
    GradientSync& sync;
    Optimizer& optimizer;
};

void take_steps(Rank& rank, const RowTask& task, const Sizes& sizes,
                const Worker& worker) {
    for (int step = 0; step < sizes.steps; ++step) {
        const auto mine = batches_of_worker(rank.device(), task, step, worker.place,
                                            sizes.workers, sizes.micro_batches);
        keep_loss(rank, train_step(rank.device(), worker.model, task.loss, mine,
                                   worker.sync, worker.optimizer));
    }
}

std::unique_ptr<Module> model_of(Rank& rank, const RowTask& task) {
    return task.make_model({rank.device(), DType::f64, 1, ""});
}

/// A form in which all ranks are replicas; `make` returns the strategy.
TrainRank replicas(const std::function<std::unique_ptr<GradientSync>(
                       Rank&, const std::vector<Parameter*>&)>& make) {
    return [make](Rank& rank, const RowTask& task, const Sizes& sizes) {
        const auto model = model_of(rank, task);
        declare_replicas_of(rank.world(), *model);
        const auto sync = make(rank, model->parameters());
        const auto optimizer = momentum_sgd(sync->shards());
        take_steps(rank, task, sizes, {rank.index(), *model, *sync, *optimizer});
        keep_updated(rank, sync->shards());
    };
}

TrainRank buckets(BucketOptions options) {
    return replicas([options](Rank& rank, const std::vector<Parameter*>& all) {
        return std::make_unique<BucketedDataParallel>(rank.device(), rank.world(), all,
                                                      options);
    });
}

void central_server(Rank& rank, const RowTask& task, const Sizes& sizes) {
    const auto model = model_of(rank, task);
    const auto optimizer = momentum_sgd(model->parameters());
    if (rank.index() == 0) {
        serve_parameters(rank.device(), rank.world(), model->parameters(), *optimizer,
                         sizes.steps);
        for (Parameter* parameter : model->parameters())
            parameter->complete = true;
        keep_updated(rank, model->parameters());
    } else {
        ServedWorker sync(rank.device(), rank.world(), model->parameters());
        take_steps(rank, task, sizes, {rank.index() - 1, *model, sync, *optimizer});
    }
}

/// The first `servers` ranks serve. If `dedicated`, only the other ranks are workers.
TrainRank sharded(int servers, bool dedicated, const ServerPlan& plan) {
    return [=](Rank& rank, const RowTask& task, const Sizes& sizes) {
        ServerPlan mine = plan;
        mine.servers.resize(std::min(servers, rank.size()));
        std::iota(mine.servers.begin(), mine.servers.end(), 0);
        const int first = dedicated ? servers : 0;
        if (dedicated) {
            mine.workers.resize(sizes.workers);
            std::iota(mine.workers.begin(), mine.workers.end(), first);
        }
        const auto model = model_of(rank, task);
        if (!dedicated) declare_replicas_of(rank.world(), *model);
        ShardedServer sync(rank.device(), rank.world(), model->parameters(), mine);
        const auto optimizer = momentum_sgd(sync.shards());
        if (sync.works())
            take_steps(rank, task, sizes,
                       {rank.index() - first, *model, sync, *optimizer});
        for (int step = 0; !sync.works() && step < sizes.steps; ++step)
            sync.serve(*optimizer);
        keep_updated(rank, sync.shards());
        if (sync.works() && rank.index() == first + 1)  // a worker has all values
            for (const Parameter* parameter : model->parameters())
                rank.keep("value/" + parameter->name(), parameter->value);
    };
}

void one_process(Rank& rank, const RowTask& task, const Sizes& sizes) {
    const auto model = model_of(rank, task);
    const auto optimizer = momentum_sgd(model->parameters());
    Device& device = rank.device();
    for (int step = 0; step < sizes.steps; ++step) {
        std::vector<MainBatch> batches;
        const int all = rows_of_all(sizes.workers);
        for (int i = 0; i < sizes.micro_batches; ++i) {
            const Chunk rows = chunk(all, sizes.micro_batches, i);
            const auto [input, target] = task.rows(
                step, all, static_cast<int>(rows.begin), static_cast<int>(rows.count));
            MainBatch batch{input.shape(), input.dtype(), task.batch_dimension};
            batch.weight = static_cast<double>(rows.count) / all;
            if (rank.index() == 0) {
                batch.input = device.upload(input);
                batch.target = device.upload(target);
            }
            batches.push_back(batch);
        }
        const Tensor loss = one_process_step(device, rank.world(), *model, task.loss,
                                             batches, *optimizer);
        CHECK(static_cast<bool>(loss) == (rank.index() == 0));
        if (loss) keep_loss(rank, loss);
    }
    for (Parameter* parameter : model->parameters())
        parameter->complete = rank.index() == 0;
    if (rank.index() == 0) keep_updated(rank, model->parameters());
}

std::vector<Form> forms() {
    constexpr BucketSizes kSmall{300, 100};
    using Deal = ServerPlan::Deal;
    return {
        {"all-reduce", replicas([](Rank&, const std::vector<Parameter*>& all) {
             return std::make_unique<AllReduceSync>(all);
         })},
        {"a bucket a parameter", buckets({.sizes = {0, 0}})},
        {"small buckets", buckets({.sizes = kSmall})},
        {"small buckets that look for unused parameters",
         buckets({.sizes = kSmall, .find_unused = true})},
        {"one bucket", buckets({.sizes = BucketSizes::all_in_one(), .rebuild = false})},
        {"ZeRO-1", replicas([](Rank& rank, const std::vector<Parameter*>& all) {
             return std::make_unique<Zero1>(rank.device(), rank.world(), all);
         })},
        {"central server", central_server, 1},
        {"one sharded server, no worker", sharded(1, true, {}), 1},
        {"one server on a worker", sharded(1, false, {})},
        {"two servers of whole parameters", sharded(2, true, {.deal = Deal::whole}), 2},
        {"three servers of ranges, by layer", sharded(3, true, {.sizes = kSmall}), 3},
        {"servers on all workers", sharded(8, false, {})},
        {"servers of whole parameters on two workers, by layer",
         sharded(2, false, {.deal = Deal::whole, .sizes = kSmall})},
        {"one process", one_process},
    };
}

Outcome train_in(const Form& form, const RowTask& task, const Sizes& sizes,
                 sim::CheckLevel check) {
    sim::ClusterOptions options;
    options.ranks = sizes.workers + form.servers;
    options.check = check;
    return outcome_of(*sim::make_cluster(options),
                      [&](Rank& rank) { form.train(rank, task, sizes); });
}

}  // namespace

TEST_CASE("Each form of data parallelism makes one device's gradients", "[parallel]") {
    const bool gpt = GENERATE(false, true);
    const RowTask task = gpt ? gpt_task() : mlp_task();
    for (int workers = 1; workers <= 8; ++workers) {
        const Outcome one = train_on_one(task, workers, 1);
        for (const Form& form : forms()) {
            for (const int micro_batches : {1, 3}) {
                CAPTURE(gpt, workers, form.name, micro_batches);
                check_alike(train_in(form, task, {workers, micro_batches, 1},
                                     sim::CheckLevel::full),
                            one);
            }
        }
    }
}

TEST_CASE("Each form of data parallelism gives one device's final weights",
          "[parallel][slow]") {
    constexpr int kSteps = 50;
    const bool gpt = GENERATE(false, true);
    const RowTask task = gpt ? gpt_task() : mlp_task();
    for (int workers = 1; workers <= 8; ++workers) {
        const Outcome one = train_on_one(task, workers, kSteps);
        for (const Form& form : forms()) {
            for (const int micro_batches : {1, 3}) {
                CAPTURE(gpt, workers, form.name, micro_batches);
                check_alike(train_in(form, task, {workers, micro_batches, kSteps},
                                     sim::CheckLevel::cheap),
                            one);
            }
        }
    }
}

namespace {

/// Returns the message that two ranks get if they run `call` with an MLP.
std::string refusal(const std::function<void(Rank&, Module&)>& call) {
    std::string refused;
    sim::make_cluster(2)->run([&](Rank& rank) {
        const auto model = model_of(rank, mlp_task());
        try {
            call(rank, *model);
        } catch (const UsageError& error) {
            refused = error.what();
        }
    });
    return refused;
}

}  // namespace

TEST_CASE("Servers refuse an impossible plan", "[parallel][errors]") {
    const auto of_plan = [&](const ServerPlan& plan) {
        return refusal([&](Rank& rank, Module& model) {
            ShardedServer(rank.device(), rank.world(), model.parameters(), plan);
        });
    };
    using Catch::Matchers::ContainsSubstring;
    CHECK_THAT(of_plan({}), ContainsSubstring("the plan names no server"));
    CHECK_THAT(of_plan({{0, 2}}), ContainsSubstring("names rank 2"));
    CHECK_THAT(of_plan({{1, 1}}), ContainsSubstring("names rank 1"));
    CHECK_THAT(of_plan({{0}, {-1}}), ContainsSubstring("names rank -1"));
}

TEST_CASE("Servers refuse an optimizer of other parameters", "[parallel][errors]") {
    using Catch::Matchers::StartsWith;
    CHECK_THAT(refusal([](Rank& rank, Module& model) {
                   ShardedServer sync(rank.device(), rank.world(), model.parameters(),
                                      ServerPlan{{0, 1}});
                   sync.update(*momentum_sgd(model.parameters()));
               }),
               StartsWith("ShardedServer, where a rank updates shards(): the optimizer's "
                          "parameters are not those"));
    CHECK_THAT(refusal([](Rank& rank, Module& model) {
                   const auto other = model_of(rank, mlp_task());
                   serve_parameters(rank.device(), rank.world(), model.parameters(),
                                    *momentum_sgd(other->parameters()), 1);
               }),
               StartsWith("serve_parameters: the optimizer's parameters are not those"));
    CHECK_THAT(refusal([](Rank& rank, Module& model) {
                   const auto pairs = pairs_with_server(rank.world());
                   if (rank.index() == 0)
                       serve_stale(rank.device(), pairs, model.parameters(),
                                   *momentum_sgd({model.parameters().front()}), 1, 0);
               }),
               StartsWith("serve_stale: the optimizer's parameters are not those that "
                          "are updated here: it has 1, and 4 are updated"));
    CHECK_THAT(refusal([](Rank& rank, Module& model) {
                   serve_parameters(rank.device(), rank.world(), model.parameters(),
                                    *momentum_sgd(model.parameters()), -1);
               }),
               StartsWith("serve_parameters: -1 steps"));
}

TEST_CASE("One process refuses batches that it cannot distribute", "[parallel][errors]") {
    /// A module that returns fewer rows than its input has.
    class Shorter : public Module {
      public:
        std::vector<Parameter*> parameters() override { return {}; }

      private:
        Tensor do_forward(const Tensor& x, Saved&) override {
            return x.rows(0, x.shape().matrix_rows() - 1);
        }
        Tensor do_backward_input(const Tensor& dy, Saved&) override { return dy; }
    };
    const auto of_batch = [](int dimension) {
        return refusal([=](Rank& rank, Module& model) {
            Device& device = rank.device();
            MainBatch batch{{6, 5}, DType::f64, dimension};
            if (rank.index() == 0)
                batch.input = batch.target = device.zeros({6, 5}, DType::f64);
            Shorter shorter;
            one_process_step(device, rank.world(), shorter, mean_squared_error,
                             {&batch, 1}, *momentum_sgd(model.parameters()));
        });
    };
    using Catch::Matchers::ContainsSubstring;
    for (const int dimension : {-1, 2, 7})
        CHECK_THAT(of_batch(dimension),
                   ContainsSubstring(
                       fmt::format("one_process_step: a batch of shape (6, 5) cannot be "
                                   "scattered along dimension {}; 0 to 1 is expected",
                                   dimension)));
    CHECK_THAT(of_batch(0), ContainsSubstring("one_process_step: the input has shape (3, "
                                              "5) and the model's prediction (2, 5)"));
}

}  // namespace lockstep::test

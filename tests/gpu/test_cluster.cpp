// Programs on several processes: failures must be explained, and figures must be equal to
// the simulator's.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/checkpoint.hpp"
#include "src/parallel/data_parallel.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/global_batch_norm.hpp"
#include "src/parallel/parameter_server.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/power_sgd.hpp"
#include "src/parallel/ring_collectives.hpp"
#include "src/parallel/rounded_all_reduce.hpp"
#include "src/parallel/sharded_server.hpp"
#include "src/parallel/stale_server.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/parallel/zero_2.hpp"
#include "src/parallel/zero_offload.hpp"
#include "tests/catch.hpp"
#include "tests/gpu/forked_cluster.hpp"
#include "tests/parallel/data_parallel_task.hpp"
#include "tests/parallel/twin.hpp"
#include "tests/temporary_folder.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kCount = 1000;

/// Runs the program. Returns its failure; empty if there is none.
std::string failure_of(int ranks, const Program& program,
                       double timeout = stall_seconds()) {
    ForkedOptions options;
    options.timeout_seconds = timeout;
    try {
        make_forked_cluster(ranks, options)->run(program);
    } catch (const std::runtime_error& error) {
        return error.what();
    }
    return {};
}

void says(const std::string& text, const std::string& part) {
    INFO(text);
    REQUIRE(text.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("Separate servers get gradients from workers and answer them, on processes",
          "[gpu][cluster]") {
    constexpr int kServers = 2;
    constexpr int kWorkers = 2;
    constexpr int kSteps = 4;
    if (!has_gpus_for(kServers + kWorkers)) return;
    const RowTask task = mlp_task();
    // Each bucket has one parameter, so pushes and pulls overlap.
    const ServerPlan plan{{0, 1}, {2, 3}, ServerPlan::Deal::ranges, {0, 0}};
    const auto cluster = make_forked_cluster(kServers + kWorkers);
    const Outcome served = outcome_of(*cluster, [&](Rank& rank) {
        Device& device = rank.device();
        const auto model = task.make_model({device, DType::f64, 1, ""});
        ShardedServer sync(device, rank.world(), model->parameters(), plan);
        const auto optimizer = momentum_sgd(sync.shards());
        for (int step = 0; step < kSteps; ++step) {
            if (!sync.works()) {
                sync.serve(*optimizer);
                continue;
            }
            const auto mine = batches_of_worker(device, task, step,
                                                rank.index() - kServers, kWorkers, 3);
            const Tensor loss =
                train_step(device, *model, task.loss, mine, sync, *optimizer);
            rank.keep_value("loss", device.download(loss).at(0));
        }
        keep_updated(rank, sync.shards());
    });
    check_alike(served, train_on_one(task, kWorkers, kSteps));
}

TEST_CASE("Compressed gradients and batch norm over ranks equal the simulator's",
          "[gpu][cluster]") {
    constexpr int kRanks = 2;
    if (!has_gpus_for(kRanks)) return;
    struct Way {
        const char* name;
        std::function<std::unique_ptr<GradientSync>(Rank&, std::vector<Parameter*>)> sync;
        double bound;  ///< relative to the largest value
    };
    const auto way = GENERATE(
        Way{"bf16",
            [](Rank& rank, std::vector<Parameter*> all) {
                return std::make_unique<RoundedAllReduce>(
                    rank.device(), rank.world(), std::move(all), BucketSizes{100, 100});
            },
            Bf16::kEpsilon},
        Way{"PowerSGD",
            [](Rank& rank, std::vector<Parameter*> all) {
                return std::make_unique<PowerSgd>(rank.device(), rank.world(),
                                                  std::move(all), PowerSgdOptions{1, 0});
            },
            1e-9},
        Way{"batch norm",
            [](Rank&, std::vector<Parameter*> all) {
                return std::make_unique<AllReduceSync>(std::move(all));
            },
            1e-11});
    CAPTURE(way.name);
    const auto train = [&](Rank& rank) {
        constexpr std::int64_t kRows = 6;
        Device& device = rank.device();
        const ParameterInit init{device, DType::f64, 1, ""};
        Sequential model;
        model.add<Linear>(init.child("in"), 8, 12);
        model.add<GlobalBatchNorm>(init.child("norm"), rank.world(), 12);
        model.add<Linear>(init.child("out"), 12, 8);
        declare_replicas_of(rank.world(), model);
        const auto sync = way.sync(rank, model.parameters());
        const auto optimizer = momentum_sgd(model.parameters());
        for (int step = 0; step < 3; ++step) {
            const auto rows = [&](const char* name) {
                return device.upload(
                    normal_values({kRanks * kRows, 8}, name + std::to_string(step))
                        .rows(rank.index() * kRows, kRows));
            };
            const MicroBatch mine{rows("x"), rows("y"), 1.0 / kRanks};
            train_step(device, model, mean_squared_error, {&mine, 1}, *sync, *optimizer);
        }
        for (const Parameter* parameter : model.parameters())
            rank.keep(parameter->name(), parameter->value);
    };
    const RunReport here = sim::make_cluster(kRanks)->run(train);
    const RunReport there = make_forked_cluster(kRanks)->run(train);
    for (int rank = 0; rank < kRanks; ++rank)
        for (const auto& [name, values] : here.ranks[rank].kept) {
            CAPTURE(rank, name);
            const HostTensor& got = there.ranks[rank].kept.at(name);
            CHECK(relative_difference(got, values) <= way.bound);
            CHECK(got == there.ranks[0].kept.at(name));
        }
}

namespace {

/// A strategy that shards parameters, gradients or states.
template <typename Stage>
std::unique_ptr<GradientSync> stage_of(Rank& rank, Sequential& model) {
    return std::make_unique<Stage>(rank.device(), rank.world(), model.parameters(),
                                   ZeroOptions{.sizes = {400, 400}});
}
std::unique_ptr<GradientSync> fully_sharded(Rank& rank, Sequential& model,
                                            FullyShardedOptions options) {
    return std::make_unique<FullySharded>(rank.device(), rank.world(), model, options);
}

struct NamedWay {
    const char* name;
    std::function<std::unique_ptr<GradientSync>(Rank&, Sequential&)> make;
};

}  // namespace

TEST_CASE("ZeRO's stages on processes equal the simulator's", "[gpu][cluster]") {
    constexpr int kRanks = 2;
    if (!has_gpus_for(kRanks)) return;
    const auto way = GENERATE(
        NamedWay{"stage 1", stage_of<Zero1>}, NamedWay{"stage 2", stage_of<Zero2>},
        NamedWay{"offload", stage_of<ZeroOffload>},
        NamedWay{
            "by rows",
            [](Rank& rank, Sequential& model) { return fully_sharded(rank, model, {}); }},
        NamedWay{"packed",
                 [](Rank& rank, Sequential& model) {
                     return fully_sharded(rank, model,
                                          {.shard_by = ShardBy::packed_rows});
                 }},
        NamedWay{"flat, on the host", [](Rank& rank, Sequential& model) {
                     return fully_sharded(rank, model,
                                          {.shard_by = ShardBy::flat, .on_host = true});
                 }});
    CAPTURE(way.name);
    const RowTask task = gpt_task();
    const auto train = [&](Rank& rank) {
        Device& device = rank.device();
        const auto made = task.make_model({device, DType::f64, 1, ""});
        auto& model = dynamic_cast<Sequential&>(*made);
        declare_replicas_of(rank.world(), model);
        const auto sync = way.make(rank, model);
        const auto optimizer = adamw(sync->shards());
        for (int step = 0; step < 3; ++step)
            train_step(device, model, task.loss,
                       batches_of_worker(device, task, step, rank.index(), kRanks, 2),
                       *sync, *optimizer);
        keep_updated(rank, sync->shards());
    };
    const RunReport here = sim::make_cluster(kRanks)->run(train);
    const RunReport there = make_forked_cluster(kRanks)->run(train);
    for (int rank = 0; rank < kRanks; ++rank) {
        CHECK(there.ranks[rank].kept.size() == here.ranks[rank].kept.size());
        for (const auto& [name, values] : here.ranks[rank].kept) {
            CAPTURE(rank, name);
            CHECK(relative_difference(there.ranks[rank].kept.at(name), values) <= 1e-9);
        }
    }
}

TEST_CASE("Processes save checkpoints that the simulator loads, and load the simulator's",
          "[gpu][cluster]") {
    constexpr int kRanks = 2;
    if (!has_gpus_for(kRanks)) return;
    const TemporaryFolder folder;
    const RowTask task = gpt_task();
    /// Begins with the checkpoint `from` if there is one, trains `steps` steps, and
    /// saves.
    const auto train = [&](const std::filesystem::path& from, int steps,
                           const std::string& to) {
        return [&task, &folder, from, steps, to](Rank& rank) {
            Device& device = rank.device();
            const auto made = task.make_model({device, DType::f64, 1, ""});
            auto& model = dynamic_cast<Sequential&>(*made);
            declare_replicas_of(rank.world(), model);
            FullySharded sync(device, rank.world(), model);
            const auto optimizer = adamw(sync.shards());
            std::int64_t step = 0;
            if (!from.empty())
                step =
                    load_checkpoint(device, rank.world(), from, {sync, optimizer.get()});
            for (const std::int64_t end = step + steps; step < end; ++step)
                train_step(device, model, task.loss,
                           batches_of_worker(device, task, static_cast<int>(step),
                                             rank.index(), kRanks, 1),
                           sync, *optimizer);
            save_checkpoint(device, rank.world(), folder / to, step,
                            {sync, optimizer.get()});
        };
    };
    const auto saved = [&](const std::string& name) {
        return latest_checkpoint(folder / name).value();
    };
    sim::make_cluster(kRanks)->run(train({}, 3, "here"));
    make_forked_cluster(kRanks)->run(train({}, 2, "there"));
    sim::make_cluster(kRanks)->run(train(saved("there"), 1, "there and here"));
    make_forked_cluster(kRanks)->run(train(saved("there and here"), 0, "and there"));
    const NamedTensors here = read_checkpoint(saved("here"));
    const NamedTensors moved = read_checkpoint(saved("there and here"));
    CHECK(read_checkpoint(saved("and there")) == moved);
    for (const auto& [name, values] : here) {
        CAPTURE(name);
        CHECK(relative_difference(moved.at(name), values) <= 1e-9);
    }
}

namespace {

constexpr int kServedSteps = 6;

void work_for_server(Rank& rank, const RowTask& task, Communicator& server) {
    Device& device = rank.device();
    const auto model = task.make_model({device, DType::f64, 1, ""});
    const auto optimizer = momentum_sgd(model->parameters());
    ServedWorker sync(device, server, model->parameters());
    for (int step = 0; step < kServedSteps; ++step)
        train_step(
            device, *model, task.loss,
            batches_of_worker(device, task, step, rank.index() - 1, rank.size() - 1, 1),
            sync, *optimizer);
}

/// Trains with rank 0 as the server: asynchronously with a bound, else synchronously.
void serve(Rank& rank, const RowTask& task, std::optional<std::int64_t> bound) {
    Device& device = rank.device();
    const auto pairs = pairs_with_server(rank.world());
    if (rank.index() > 0)
        return work_for_server(rank, task,
                               bound ? *pairs[rank.index() - 1] : rank.world());
    const auto model = task.make_model({device, DType::f64, 1, ""});
    const auto optimizer = momentum_sgd(model->parameters());
    if (!bound)
        serve_parameters(device, rank.world(), model->parameters(), *optimizer,
                         kServedSteps);
    else
        for (const StaleUpdate& update : serve_stale(device, pairs, model->parameters(),
                                                     *optimizer, kServedSteps, *bound)) {
            rank.keep_value("staleness", static_cast<double>(update.staleness));
            rank.keep_value(fmt::format("clocks of {}", update.worker),
                            static_cast<double>(update.clock));
        }
    for (const Parameter* parameter : model->parameters())
        rank.keep(parameter->name(), parameter->value);
}

}  // namespace

TEST_CASE("An asynchronous server on processes keeps its bound", "[gpu][cluster]") {
    constexpr int kRanks = 3;
    if (!has_gpus_for(kRanks)) return;
    const RowTask task = mlp_task();
    const auto served_within = [&](std::optional<std::int64_t> bound) {
        return make_forked_cluster(kRanks)
            ->run([&](Rank& rank) { serve(rank, task, bound); })
            .ranks[0];
    };
    CHECK(served_within(0).kept == served_within(std::nullopt).kept);
    const std::vector<double> in_order{0, 1, 2, 3, 4, 5};
    for (const std::int64_t bound : {0, 2}) {
        const RankReport server = served_within(bound);
        const std::vector<double>& staleness = server.series.at("staleness");
        CHECK(std::ssize(staleness) == std::int64_t{kRanks - 1} * kServedSteps);
        CHECK(*std::ranges::max_element(staleness) <= static_cast<double>(bound));
        for (int worker = 0; worker < kRanks - 1; ++worker)
            CHECK(server.series.at(fmt::format("clocks of {}", worker)) == in_order);
    }
}

TEST_CASE("A ring by hand and data parallelism run on processes as on virtual devices",
          "[gpu][cluster]") {
    for (const int ranks : {1, 2, 3, 4}) {
        if (!has_gpus_for(ranks)) continue;
        const Program program = [](Rank& rank) {
            Device& device = rank.device();
            const Tensor buffer = device.empty({kCount}, DType::f64);
            device.random_normal(buffer, {7, "buffer"}, 0, 1, rank.index() * kCount);
            const Tensor same = device.empty({kCount}, DType::f64);
            device.copy(same, buffer);
            ring_all_reduce(device, rank.world(), buffer);
            rank.world().all_reduce(same).wait();
            rank.keep("ring", buffer);
            rank.keep("all_reduce", same);
        };
        const RunReport real = make_forked_cluster(ranks)->run(program);
        const RunReport simulated = sim::make_cluster(ranks)->run(program);
        REQUIRE(real.ranks.size() == simulated.ranks.size());
        for (std::size_t r = 0; r < real.ranks.size(); ++r) {
            const RankReport& mine = real.ranks[r];
            const RankReport& theirs = simulated.ranks[r];
            for (const char* name : {"ring", "all_reduce"})
                for (std::int64_t i = 0; i < kCount; ++i)
                    REQUIRE(std::abs(mine.kept.at(name).at(i) -
                                     theirs.kept.at(name).at(i)) < 1e-12);
            CHECK(mine.bytes_sent() == theirs.bytes_sent());
            CHECK(mine.messages_sent() == theirs.messages_sent());
            CHECK(mine.traffic.size() == theirs.traffic.size());
            CHECK(mine.memory.peak == theirs.memory.peak);
            CHECK(mine.memory.category_peak == theirs.memory.category_peak);
            CHECK(mine.flops == theirs.flops);
            CHECK(mine.time.end > 0);
            CHECK(mine.time.compute > 0);
        }
    }
}

TEST_CASE("A trace of processes has every rank's spans, properly nested",
          "[gpu][cluster]") {
    if (!has_gpus_for(2)) SKIP(lacking_gpus(2));
    ForkedOptions options;
    options.trace = true;
    const RunReport report = make_forked_cluster(2, options)->run([](Rank& rank) {
        const Tensor x = rank.device().zeros({kCount}, DType::f32);
        const PhaseScope phase(rank.device(), Phase::forward, 3);
        rank.device().scale(x, 2);
        rank.world().all_reduce(x).wait();
    });
    for (int rank = 0; rank < 2; ++rank) {
        const TraceEvent* phase = nullptr;
        const TraceEvent* scale = nullptr;
        const TraceEvent* reduce = nullptr;
        for (const TraceEvent& event : report.trace) {
            if (event.rank != rank) continue;
            CHECK(event.end >= event.start);
            if (event.name == "forward") phase = &event;
            if (event.name == "scale") scale = &event;
            if (event.name == "all_reduce") reduce = &event;
        }
        REQUIRE(phase != nullptr);
        REQUIRE(scale != nullptr);
        REQUIRE(reduce != nullptr);
        CHECK(phase->micro_batch == 3);
        CHECK(phase->start <= scale->start);
        CHECK(scale->end <= phase->end);
        CHECK(scale->end <= reduce->start);
        CHECK(reduce->queue == "world");
        CHECK(reduce->bytes == kCount * 4);
    }
    CHECK_FALSE(report.memory_trace.empty());
}

TEST_CASE("Slices of a long trace nest on every queue", "[gpu][cluster]") {
    if (!has_gpus_for(1)) SKIP(lacking_gpus(1));
    constexpr int kSteps = 400;
    ForkedOptions options;
    options.trace = true;
    const RunReport report = make_forked_cluster(1, options)->run([](Rank& rank) {
        const Tensor x = rank.device().zeros({kCount}, DType::f32);
        const PhaseScope all(rank.device(), Phase::update);
        for (int step = 0; step < kSteps; ++step) {
            const PhaseScope phase(rank.device(), Phase::forward, step);
            rank.device().scale(x, 2);
            rank.device().scale(x, 0.5);
            rank.world().all_reduce(x).wait();
        }
    });
    std::map<std::string, int> named;
    std::map<std::string, std::vector<const TraceEvent*>> open;
    for (const TraceEvent& event : report.trace) {
        ++named[event.name];
        std::vector<const TraceEvent*>& around = open[event.queue];
        while (!around.empty() && around.back()->end <= event.start)
            around.pop_back();
        INFO(event.name << " " << event.start << " to " << event.end);
        REQUIRE(event.end >= event.start);
        if (!around.empty()) REQUIRE(event.end <= around.back()->end);
        around.push_back(&event);
    }
    CHECK(named["scale"] == 2 * kSteps);
    CHECK(named["all_reduce"] == kSteps);
    CHECK(named["forward"] == kSteps);
    CHECK(named["update"] == 1);
    CHECK(report.ranks[0].time.compute > 0);
}

TEST_CASE("A hang on processes is explained like a simulated one", "[gpu][cluster]") {
    if (!has_gpus_for(2)) SKIP(lacking_gpus(2));
    const std::string counts = failure_of(2, [](Rank& rank) {
        const Tensor x =
            rank.device().zeros({rank.index() == 0 ? kCount : kCount / 2}, DType::f32);
        rank.world().all_reduce(x).wait();
        rank.keep("x", x);
        rank.world().barrier().wait();
        rank.keep("x", x);
    });
    says(counts, "the run is stuck");
    says(counts, "F02");
    says(counts, "count 500 against");

    const std::string missing = failure_of(2, [](Rank& rank) {
        const Tensor x = rank.device().zeros({kCount}, DType::f32);
        rank.world().all_reduce(x).wait();
        if (rank.index() == 1) return;
        rank.world().all_reduce(x).wait();
        rank.keep("x", x);
    });
    says(missing, "F07");
    says(missing, "has ended without that call");

    const std::string alone = failure_of(2, [](Rank& rank) {
        const Tensor x = rank.device().zeros({kCount}, DType::f32);
        if (rank.index() == 0) rank.world().recv(x, 1).wait();
        rank.keep("x", x);
    });
    says(alone, "F10");
}

TEST_CASE(
    "A first message that no rank receives is explained while the host waits for it",
    "[gpu][cluster]") {
    if (!has_gpus_for(4)) SKIP(lacking_gpus(4));
    const std::string circle = failure_of(4, [](Rank& rank) {
        const Tensor x = rank.device().zeros({kCount}, DType::f32);
        const int opposite = (rank.index() + 2) % 4;
        rank.world().send(x, opposite).wait();
        rank.world().recv(x, opposite).wait();
    });
    says(circle, "F11");
    const std::string alone = failure_of(4, [](Rank& rank) {
        const Tensor x = rank.device().zeros({kCount}, DType::f32);
        if (rank.index() == 0) rank.world().recv(x, 2).wait();
        rank.keep("x", x);
    });
    says(alone, "F10");
}

TEST_CASE("A GPU that computes for long while its rank waits is no stall",
          "[gpu][cluster]") {
    if (!has_gpus_for(2)) SKIP(lacking_gpus(2));
    ForkedOptions options;
    options.timeout_seconds = 2;
    const auto began = std::chrono::steady_clock::now();
    const RunReport report = make_forked_cluster(2, options)->run([](Rank& rank) {
        Device& device = rank.device();
        const Tensor x = device.zeros({512, 512}, DType::f32);
        for (int i = 0; i < 200; ++i)
            device.matmul(x, x);
        rank.keep("x", x);
        rank.world().barrier().wait();
        rank.keep("x", x);
    });
    // On a fast GPU the run is too short to show anything.
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    if (took.count() < 2) WARN("took only " << took.count() << " s");
    CHECK(report.ranks.size() == 2);
}

TEST_CASE("To connect is neither a stall nor communication", "[gpu][cluster]") {
    if (!has_gpus_for(2)) SKIP(lacking_gpus(2));
    // This takes longer than the timeout. A real GPU's processes ignore the setting.
    ::setenv("EMULATED_CONNECT_MILLISECONDS", "1500", 1);
    ForkedOptions options;
    options.timeout_seconds = 1;
    const RunReport report = make_forked_cluster(2, options)->run([](Rank& rank) {
        const Tensor x = rank.device().zeros({kCount}, DType::f32);
        const auto half = rank.world().split(0, -rank.index(), "half");
        half->all_reduce(x).wait();
        const int peer = 1 - half->rank();
        if (half->rank() == 0)
            half->send(x, peer).wait();
        else
            half->recv(x, peer).wait();
        rank.keep("x", x);
    });
    ::unsetenv("EMULATED_CONNECT_MILLISECONDS");
    for (const RankReport& rank : report.ranks)
        CHECK(rank.time.communication < kSecond);
}

TEST_CASE("Indices from another rank are checked", "[gpu][cluster]") {
    if (!has_gpus_for(2)) SKIP(lacking_gpus(2));
    says(failure_of(2,
                    [](Rank& rank) {
                        Device& device = rank.device();
                        const Tensor table = device.zeros({10, 4}, DType::f32);
                        const std::vector<std::int32_t> good{0, 9}, bad{0, 10};
                        const Tensor ids = device.upload(
                            HostTensor::of({2}, rank.index() == 0 ? bad : good));
                        rank.world().broadcast(ids, 0).wait();
                        if (rank.index() == 1) device.embedding(table, ids);
                        rank.world().barrier().wait();
                    }),
         "index 1 is 10, outside [0, 10)");
}

TEST_CASE("A mistake that NCCL lets through is found at the end of the run",
          "[gpu][cluster]") {
    if (!has_gpus_for(2)) SKIP(lacking_gpus(2));
    says(failure_of(
             2,
             [](Rank& rank) {
                 const Tensor x = rank.device().zeros({kCount}, DType::f32);
                 rank.world()
                     .all_reduce(x,
                                 rank.index() == 0 ? Reduction::sum : Reduction::maximum)
                     .wait();
             },
             20),
         "F04");
    says(failure_of(
             2,
             [](Rank& rank) {
                 const Tensor x = rank.device().zeros({kCount}, DType::f32);
                 rank.world().broadcast(x, 0).wait();
                 if (rank.index() == 0) return;
                 rank.world().broadcast(x, 1).wait();
             },
             20),
         "without an error, but its calls are wrong");
}

TEST_CASE("A program that loops is not taken for one that waits", "[gpu][cluster]") {
    if (!has_gpus_for(2)) SKIP(lacking_gpus(2));
    const std::string loops = failure_of(2, [](Rank& rank) {
        const Tensor x = rank.device().zeros({kCount}, DType::f32);
        rank.world().all_reduce(x).wait();
        if (rank.index() == 1) ::sleep(60);
        rank.world().all_reduce(x).wait();
        rank.keep("x", x);
    });
    says(loops, "has not reached that call");
}

TEST_CASE("An exception on one rank ends all processes with its message",
          "[gpu][cluster]") {
    for (const int ranks : {2, 4}) {
        if (!has_gpus_for(ranks)) continue;
        for (int culprit = 0; culprit < ranks; ++culprit) {
            const std::string thrown = failure_of(
                ranks,
                [&](Rank& rank) {
                    const Tensor x = rank.device().zeros({kCount}, DType::f32);
                    if (rank.index() == culprit) throw UsageError("this is wrong");
                    rank.world().all_reduce(x).wait();
                    rank.keep("x", x);
                },
                20);
            says(thrown, "this is wrong");
            if (culprit > 0) says(thrown, fmt::format("rank {}: this is wrong", culprit));
        }
    }
}

TEST_CASE("A process that dies ends the others", "[gpu][cluster]") {
    if (!has_gpus_for(3)) SKIP(lacking_gpus(3));
    const std::string died = failure_of(
        3,
        [](Rank& rank) {
            const Tensor x = rank.device().zeros({kCount}, DType::f32);
            rank.world().all_reduce(x).wait();
            if (rank.index() == 2) ::raise(SIGKILL);
            rank.world().all_reduce(x).wait();
            rank.keep("x", x);
        },
        20);
    says(died, "rank 2 was lost");
}

TEST_CASE("Work that is never waited for keeps its buffers until it is done",
          "[gpu][cluster]") {
    if (!has_gpus_for(2)) SKIP(lacking_gpus(2));
    const RunReport report = make_forked_cluster(2)->run([](Rank& rank) {
        Device& device = rank.device();
        for (int step = 0; step < 50; ++step) {
            const Tensor x = device.empty({kCount}, DType::f32);
            device.fill(x, step);
            { const Work dropped = rank.world().all_reduce(x); }
        }
        const Tensor last = device.empty({kCount}, DType::f32);
        device.fill(last, 1);
        rank.world().all_reduce(last).wait();
        rank.keep("last", last);
    });
    for (const RankReport& rank : report.ranks)
        for (std::int64_t i = 0; i < kCount; ++i)
            REQUIRE(rank.kept.at("last").at(i) == 2);
}

TEST_CASE("A failure ends every communicator that has work under way", "[gpu][cluster]") {
    if (!has_gpus_for(4)) SKIP(lacking_gpus(4));
    const std::string thrown = failure_of(
        4,
        [](Rank& rank) {
            const Tensor x = rank.device().zeros({kCount}, DType::f32);
            const Tensor y = rank.device().zeros({kCount}, DType::f32);
            const auto pair = rank.world().split(rank.index() / 2, 0, "pair");
            if (rank.index() == 3) throw UsageError("this is wrong");
            const Work one = pair->all_reduce(x);
            const Work two = rank.world().all_reduce(y);
            rank.keep("y", y);
            rank.world().barrier().wait();
            rank.keep("x", x);
        },
        20);
    says(thrown, "rank 3: this is wrong");
}

TEST_CASE("A program may drop its communicators in any order", "[gpu][cluster]") {
    if (!has_gpus_for(4)) SKIP(lacking_gpus(4));
    const RunReport report = make_forked_cluster(4)->run([](Rank& rank) {
        const Tensor x = rank.device().empty({kCount}, DType::f32);
        rank.device().fill(x, 1);
        auto first = rank.world().split(rank.index() % 2, 0, "first");
        auto second = rank.world().split(rank.index() / 2, 0, "second");
        Work work = second->all_reduce(x);
        (rank.index() % 2 == 0 ? first : second).reset();
        work.wait();
        rank.world().all_reduce(x).wait();
        rank.keep("x", x);
    });
    for (const RankReport& rank : report.ranks) {
        CHECK(rank.kept.at("x").at(0) == 8);
        REQUIRE(rank.traffic.size() == 3);
        CHECK(rank.traffic.back().group == "second");
    }
}

TEST_CASE("With too few GPUs for the ranks, the message says what to do",
          "[gpu][cluster]") {
    if (count_gpus() >= 64) SKIP("64 GPUs are enough");
    says(failure_of(
             64, [](Rank&) {}, 20),
         "would both take GPU");
}

}  // namespace lockstep::test

// Compares bytes, messages and virtual time of all forms of data parallelism with
// formulas.

#include <functional>
#include <map>
#include <numeric>
#include <string>

#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/bucketed_data_parallel.hpp"
#include "src/parallel/data_parallel_one_process.hpp"
#include "src/parallel/parameter_server.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/sharded_server.hpp"
#include "src/parallel/zero_1.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/data_parallel_task.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kWidth = 60;
constexpr int kLayers = 4;
constexpr std::int64_t kRows = 12;  // for each worker
constexpr std::int64_t kLayerBytes = kWidth * kWidth * 8;
constexpr std::int64_t kBytes = kLayers * kLayerBytes;  // S
constexpr auto kArriving = static_cast<std::size_t>(MemoryCategory::communication);

/// Layers of equal size, without biases.
std::unique_ptr<Sequential> stack_of(Device& device, int layers = kLayers,
                                     std::int64_t width = kWidth) {
    auto model = std::make_unique<Sequential>();
    for (int layer = 0; layer < layers; ++layer)
        model->add<Linear>(ParameterInit{device, DType::f64, 1, std::to_string(layer)},
                           width, width, false);
    return model;
}

/// Only messages take time: 1 us + b / (10 GB/s).
ClusterSpec messages_only() {
    ClusterSpec spec = load_cluster("classroom");
    spec.launch_seconds = spec.flops_f64 = spec.memory_bytes_per_second = 0;
    spec.devices_per_node = 16;
    return spec;
}
Picoseconds message(std::int64_t bytes) {
    return message_time(messages_only().inside, bytes);
}

RunReport run_on(int ranks, const Program& program,
                 const ClusterSpec& spec = messages_only()) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.workers = 1;
    options.numbers = false;
    options.trace = true;
    options.spec = spec;
    return sim::make_cluster(options)->run(program);
}

/// Returns the only micro-batch that a worker has in a step.
std::vector<MicroBatch> rows_for(Device& device, int workers, std::int64_t rows = kRows,
                                 std::int64_t width = kWidth) {
    return {{device.empty({rows, width}, DType::f64),
             device.empty({rows, width}, DType::f64), 1.0 / workers}};
}

/// One step of `workers` with ShardedServer. The first ranks serve; if `dedicated`, they
/// are extra ranks, otherwise they are workers, too.
RunReport sharded_step(int servers, int workers, bool dedicated, ServerPlan plan = {}) {
    return run_on(workers + (dedicated ? servers : 0), [&](Rank& rank) {
        ServerPlan mine = plan;
        mine.servers.resize(servers);
        std::iota(mine.servers.begin(), mine.servers.end(), 0);
        if (dedicated) {
            mine.workers.resize(workers);
            std::iota(mine.workers.begin(), mine.workers.end(), servers);
        }
        const auto model = stack_of(rank.device());
        ShardedServer sync(rank.device(), rank.world(), model->parameters(), mine);
        const auto optimizer = momentum_sgd(sync.shards());
        if (sync.works())
            train_step(rank.device(), *model, mean_squared_error,
                       rows_for(rank.device(), workers), sync, *optimizer);
        else
            sync.serve(*optimizer);
    });
}

std::int64_t bytes_received(const RankReport& rank) {
    std::int64_t bytes = 0;
    for (const Traffic& traffic : rank.traffic)
        bytes += traffic.bytes_received;
    return bytes;
}

RunReport zero1_step(int ranks) {
    return run_on(ranks, [&](Rank& rank) {
        const auto model = stack_of(rank.device());
        declare_replicas_of(rank.world(), *model);
        Zero1 sync(rank.device(), rank.world(), model->parameters());
        const auto optimizer = momentum_sgd(sync.shards());
        train_step(rank.device(), *model, mean_squared_error,
                   rows_for(rank.device(), ranks), sync, *optimizer);
    });
}

}  // namespace

TEST_CASE("A central server's link carries all workers' gradients and values",
          "[parallel][costs]") {
    const int workers = GENERATE(1, 2, 3, 8);
    CAPTURE(workers);
    for (const bool simple : {true, false}) {
        const RunReport report =
            simple
                ? run_on(workers + 1,
                         [&](Rank& rank) {
                             Device& device = rank.device();
                             const auto model = stack_of(device);
                             const auto optimizer = momentum_sgd(model->parameters());
                             if (rank.index() == 0)
                                 return serve_parameters(device, rank.world(),
                                                         model->parameters(), *optimizer,
                                                         1);
                             ServedWorker sync(device, rank.world(), model->parameters());
                             train_step(device, *model, mean_squared_error,
                                        rows_for(device, workers), sync, *optimizer);
                         })
                : sharded_step(1, workers, true);
        CHECK(report.ranks[0].bytes_sent() == workers * kBytes);
        CHECK(bytes_received(report.ranks[0]) == workers * kBytes);
        for (int worker = 1; worker <= workers; ++worker) {
            CHECK(report.ranks[worker].bytes_sent() == kBytes);
            CHECK(bytes_received(report.ranks[worker]) == kBytes);
        }
        // The messages follow one another: n up, then n down.
        CHECK(report.makespan() == message(kBytes) * 2 * workers);
    }
}

TEST_CASE("A server on a worker's device carries 2(n-1)S", "[parallel][costs]") {
    const int workers = GENERATE(1, 2, 3, 8);
    const RunReport report = sharded_step(1, workers, false);
    CHECK(report.ranks[0].bytes_sent() + bytes_received(report.ranks[0]) ==
          kBytes * 2 * (workers - 1));
    CHECK(report.makespan() == message(kBytes) * 2 * (workers - 1));
}

TEST_CASE("Servers on all workers are a reduce-scatter and an all-gather",
          "[parallel][costs]") {
    const int workers = GENERATE(1, 2, 3, 4, 5, 6, 8);
    CAPTURE(workers);
    const RunReport servers = sharded_step(workers, workers, false);
    const RunReport collectives = zero1_step(workers);
    for (int rank = 0; rank < workers; ++rank) {
        CHECK(servers.ranks[rank].bytes_sent() == kBytes / workers * 2 * (workers - 1));
        CHECK(servers.ranks[rank].bytes_sent() == collectives.ranks[rank].bytes_sent());
        CHECK(servers.ranks[rank].messages_sent() ==
              collectives.ranks[rank].messages_sent());
    }
    CHECK(servers.makespan() == message(kBytes / workers) * 2 * (workers - 1));
    CHECK(servers.makespan() == collectives.makespan());
}

TEST_CASE("Separate servers share the load", "[parallel][costs]") {
    const int servers = GENERATE(1, 2, 4);
    const auto deal = GENERATE(ServerPlan::Deal::whole, ServerPlan::Deal::ranges);
    constexpr int kWorkers = 4;
    ServerPlan plan;
    plan.deal = deal;
    const RunReport report = sharded_step(servers, kWorkers, true, plan);
    for (int rank = 0; rank < servers + kWorkers; ++rank) {
        const std::int64_t bytes = rank < servers ? kWorkers * kBytes / servers : kBytes;
        CHECK(report.ranks[rank].bytes_sent() == bytes);
        CHECK(bytes_received(report.ranks[rank]) == bytes);
    }
    // The messages of each server follow one another, and none waits for a link.
    CHECK(report.makespan() == message(kBytes / servers) * 2 * kWorkers);
}

TEST_CASE("More servers than workers share the load, too", "[parallel][costs]") {
    constexpr int kServers = 8;
    constexpr int kWorkers = 4;
    const RunReport report = sharded_step(kServers, kWorkers, true);
    for (int rank = 0; rank < kServers; ++rank)
        CHECK(report.ranks[rank].bytes_sent() == kWorkers * kBytes / kServers);
    CHECK(report.makespan() == message(kBytes / kServers) * 2 * kServers);
}

TEST_CASE("Pushes and answers layer by layer overlap with backward",
          "[parallel][costs]") {
    const auto time = [](BucketSizes sizes, bool dedicated) {
        return run_on(
                   8,
                   [&](Rank& rank) {
                       ServerPlan plan{{0, 1, 2, 3}, {}, ServerPlan::Deal::ranges, sizes};
                       if (dedicated) plan.workers = {4, 5, 6, 7};
                       const auto model = stack_of(rank.device(), 8, 400);
                       ShardedServer sync(rank.device(), rank.world(),
                                          model->parameters(), plan);
                       const auto optimizer = momentum_sgd(sync.shards());
                       if (!sync.works()) return sync.serve(*optimizer);
                       train_step(rank.device(), *model, mean_squared_error,
                                  rows_for(rank.device(), dedicated ? 4 : 8, 500, 400),
                                  sync, *optimizer);
                   },
                   load_cluster("classroom"))
            .makespan();
    };
    constexpr std::int64_t kWide = std::int64_t{400} * 400 * 8;
    constexpr BucketSizes kLayer{kWide, kWide};
    for (const bool dedicated : {true, false})
        CHECK(time(kLayer, dedicated) < time(BucketSizes::all_in_one(), dedicated));
}

TEST_CASE("Whole parameters are distributed by their bytes, not by their number",
          "[parallel][costs]") {
    // 8 small parameters and a large one. If the number of parameters decided, the
    // server with the large parameter would get 4 small parameters, too.
    const RunReport report = run_on(3, [](Rank& rank) {
        Device& device = rank.device();
        Sequential model;
        const auto add = [&](std::int64_t out) {
            model.add<Linear>(
                ParameterInit{device, DType::f64, 1, std::to_string(model.size())}, 10,
                out, false);
        };
        add(80);
        for (int i = 0; i < 8; ++i)
            add(10);
        ServerPlan plan{{0, 1}, {2}};
        plan.deal = ServerPlan::Deal::whole;
        const ShardedServer sync(device, rank.world(), model.parameters(), plan);
        std::int64_t held = 0;
        for (const Parameter* parameter : sync.shards())
            held += parameter->value.bytes();
        rank.keep_value("held", static_cast<double>(held));
    });
    CHECK(report.ranks[0].series.at("held")[0] == 80 * 10 * 8);
    CHECK(report.ranks[1].series.at("held")[0] == 80 * 10 * 8);
    CHECK(report.ranks[2].series.at("held")[0] == 0);
}

TEST_CASE("A separate server holds only its part of the parameters",
          "[parallel][memory]") {
    const RunReport report = sharded_step(2, 2, true);
    const auto busiest = [&](int rank) {
        std::array<std::int64_t, kMemoryCategories> held{};
        for (const TraceMemory& memory : report.memory_trace)
            if (memory.rank == rank && memory.bytes[kArriving] > held[kArriving])
                held = memory.bytes;
        return held;
    };
    const auto held = busiest(0);
    CHECK(held[static_cast<std::size_t>(MemoryCategory::parameters)] == kBytes / 2);
    CHECK(held[static_cast<std::size_t>(MemoryCategory::gradients)] == kBytes / 2);
    CHECK(held[static_cast<std::size_t>(MemoryCategory::optimizer)] == kBytes / 2);
    CHECK(held[kArriving] == 2 * kBytes / 2);  // one from each worker
    CHECK(report.ranks[3].memory.peak_of(MemoryCategory::optimizer) == 0);
}

TEST_CASE("One process with many devices sends the formula's bytes",
          "[parallel][costs]") {
    const int ranks = GENERATE(1, 2, 3, 4);
    const int batches = GENERATE(1, 3);
    CAPTURE(ranks, batches);
    const std::int64_t rows = kRows * ranks;
    const RunReport report = run_on(ranks, [&](Rank& rank) {
        Device& device = rank.device();
        const auto model = stack_of(device);
        const auto optimizer = momentum_sgd(model->parameters());
        MainBatch batch{{rows, kWidth}, DType::f64};
        if (rank.index() == 0) {
            batch.input = device.empty(batch.shape, DType::f64);
            batch.target = device.empty(batch.shape, DType::f64);
        }
        const std::vector<MainBatch> all(batches, batch);
        one_process_step(device, rank.world(), *model, mean_squared_error, all,
                         *optimizer);
    });
    const std::int64_t others = (ranks - 1) * kRows * kWidth * 8;  // of inputs or outputs
    const std::int64_t values = ranks > 1 ? kBytes : 0;
    CHECK(report.ranks[0].bytes_sent() == batches * (values + 2 * others));
    CHECK(bytes_received(report.ranks[0]) == batches * (values + others));
}

TEST_CASE("The main device of one process holds more than the others",
          "[parallel][memory]") {
    constexpr int kRanks = 4;
    constexpr std::int64_t kBatch = kRanks * kRows * kWidth * 8;
    const RunReport report = run_on(kRanks, [](Rank& rank) {
        Device& device = rank.device();
        const bool is_main = rank.index() == 0;
        const auto model = stack_of(device);
        const auto optimizer =
            momentum_sgd(is_main ? model->parameters() : std::vector<Parameter*>());
        MainBatch batch{{kRanks * kRows, kWidth}, DType::f64};
        if (is_main) batch.input = device.empty(batch.shape, DType::f64);
        if (is_main) batch.target = device.empty(batch.shape, DType::f64);
        one_process_step(device, rank.world(), *model, mean_squared_error, {&batch, 1},
                         *optimizer);
    });
    for (int rank = 1; rank < kRanks; ++rank) {
        // Rank 0 also holds momentum and, during backward, all inputs, targets,
        // predictions and their gradients.
        CHECK(report.ranks[0].memory.peak - report.ranks[rank].memory.peak >=
              kBytes + 4 * kBatch);
        CHECK(report.ranks[rank].memory.peak == report.ranks[1].memory.peak);
        // Rank 0 computes what the other ranks compute, and also the loss and the step.
        CHECK(report.ranks[rank].time.compute <= report.ranks[0].time.compute);
    }
}

TEST_CASE("Each form of data parallelism sends by its own verbs", "[parallel][costs]") {
    constexpr int kRanks = 4;
    constexpr std::int64_t kShare = kBytes / kRanks;
    using Sent = std::map<std::string, std::int64_t>;
    const auto sent_by = [](const RunReport& report, int rank) {
        Sent sent;
        for (const Traffic& traffic : report.ranks[rank].traffic)
            if (traffic.bytes_sent > 0) sent[traffic.verb] += traffic.bytes_sent;
        return sent;
    };
    const RunReport central = sharded_step(1, kRanks, true);
    CHECK(sent_by(central, 0) == Sent{{"send", kRanks * kBytes}});
    CHECK(sent_by(central, 1) == Sent{{"send", kBytes}});
    const RunReport everywhere = sharded_step(kRanks, kRanks, false);
    CHECK(sent_by(everywhere, 2) == Sent{{"send", kShare * 2 * (kRanks - 1)}});
    CHECK(sent_by(zero1_step(kRanks), 2) ==
          Sent{{"reduce_scatter", (kRanks - 1) * kShare},
               {"all_gather", (kRanks - 1) * kShare}});
    // A broadcast moves along a chain; the last rank of the chain sends nothing.
    const auto in_buckets = run_on(kRanks, [](Rank& rank) {
        Device& device = rank.device();
        const auto model = stack_of(device);
        declare_replicas_of(rank.world(), *model);
        BucketedDataParallel sync(device, rank.world(), model->parameters(),
                                  {.sizes = {kLayerBytes, kLayerBytes}});
        const auto optimizer = momentum_sgd(model->parameters());
        train_step(device, *model, mean_squared_error, rows_for(device, kRanks), sync,
                   *optimizer);
    });
    CHECK(sent_by(in_buckets, 0) ==
          Sent{{"broadcast", kBytes}, {"all_reduce", kShare * 2 * (kRanks - 1)}});
    CHECK(sent_by(in_buckets, kRanks - 1) ==
          Sent{{"all_reduce", kShare * 2 * (kRanks - 1)}});
}

TEST_CASE("Buckets send 2(n-1)/n S a step, whatever their size", "[parallel][costs]") {
    const int ranks = GENERATE(1, 2, 3, 4, 5, 6);
    const BucketSizes sizes =
        GENERATE(BucketSizes{0, 0}, BucketSizes{2 * kLayerBytes, kLayerBytes},
                 BucketSizes::all_in_one());
    const int passes = GENERATE(1, 3);
    const RunReport report = run_on(ranks, [&](Rank& rank) {
        Device& device = rank.device();
        const auto model = stack_of(device);
        declare_replicas_of(rank.world(), *model);
        BucketedDataParallel sync(device, rank.world(), model->parameters(),
                                  {.sizes = sizes, .broadcast = false});
        const auto optimizer = momentum_sgd(model->parameters());
        const std::vector<MicroBatch> batches(passes,
                                              rows_for(device, ranks * passes).front());
        train_step(device, *model, mean_squared_error, batches, sync, *optimizer);
    });
    for (const RankReport& rank : report.ranks)
        CHECK(rank.bytes_sent() == kBytes / ranks * 2 * (ranks - 1));
}

TEST_CASE("The exposed time of buckets follows from backward and all-reduce",
          "[parallel][costs]") {
    constexpr int kRanks = 4;
    constexpr int kDepth = 12;
    constexpr std::int64_t kWide = 240;
    constexpr std::int64_t kManyRows = 2000;
    ClusterSpec spec = load_cluster("classroom");
    spec.inside.alpha_seconds = 200e-6;
    // Two products for each layer: for its input's gradient and its weight's gradient.
    const std::int64_t weight = kWide * kWide;
    const std::int64_t data = kManyRows * kWide;
    const std::int64_t flops = 2 * kManyRows * weight;
    const Picoseconds layer =
        operation_time(spec, flops, 8 * (2 * data + weight), DType::f64) +
        operation_time(spec, flops, 8 * (2 * data + 2 * weight), DType::f64);

    std::vector<Picoseconds> curve;
    for (const int together : {1, 2, 3, 4, 6, 12}) {
        CAPTURE(together);
        const std::int64_t bytes = together * weight * 8;
        sim::ClusterOptions options;
        options.ranks = kRanks;
        options.workers = 1;
        options.numbers = false;
        options.spec = spec;
        options.trace = true;
        const RunReport report = sim::make_cluster(options)->run([&](Rank& rank) {
            Device& device = rank.device();
            const auto model = stack_of(device, kDepth, kWide);
            declare_replicas_of(rank.world(), *model);
            BucketedDataParallel sync(device, rank.world(), model->parameters(),
                                      {.sizes = {bytes, bytes}, .broadcast = false});
            const auto optimizer = momentum_sgd(model->parameters());
            train_step(device, *model, mean_squared_error,
                       rows_for(device, kRanks, kManyRows, kWide), sync, *optimizer);
        });
        const Picoseconds reduce =
            std::int64_t{2} * (kRanks - 1) * message_time(spec.inside, bytes / kRanks);
        const Picoseconds buckets = kDepth / together;
        const Picoseconds exposed =
            std::max(reduce, buckets * reduce - (buckets - 1) * together * layer);
        Picoseconds waits = 0;
        for (const TraceEvent& event : report.trace)
            if (event.rank == 0 && event.kind == "wait") waits += event.end - event.start;
        CHECK(waits == exposed);
        CHECK(report.ranks[0].time.waiting == exposed);
        curve.push_back(exposed);
    }
    const auto least = std::ranges::min_element(curve);
    CHECK(least != curve.begin());
    CHECK(least != curve.end() - 1);
}

}  // namespace lockstep::test

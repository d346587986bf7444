#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lessons/01_gradient_accumulation/language_lesson.hpp"
#include "lessons/02_data_parallel/measured_step.hpp"
#include "lessons/02_data_parallel/not_parallel.hpp"
#include "src/core/units.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/data_parallel_one_process.hpp"
#include "src/parallel/parameter_server.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/power_sgd.hpp"
#include "src/parallel/rounded_all_reduce.hpp"
#include "src/parallel/sharded_server.hpp"
#include "src/parallel/stale_server.hpp"
#include "src/parallel/zero_1.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

std::vector<int> ranks_from(int first, int count) {
    std::vector<int> ranks(static_cast<std::size_t>(count));
    std::iota(ranks.begin(), ranks.end(), first);
    return ranks;
}

/// Makes the first `servers` devices parameter servers; they also compute as workers.
MakeStrategy servers_on_workers(int servers, ServerPlan::Deal deal) {
    return [=](Rank& rank, Module& model) {
        declare_replicas_of(rank.world(), model);
        ServerPlan plan;
        plan.servers = ranks_from(0, std::min(servers, rank.size()));
        plan.deal = deal;
        return std::make_unique<ShardedServer>(rank.device(), rank.world(),
                                               model.parameters(), plan);
    };
}

/// Returns a step of a stack of layers; each has width · width weights and no bias.
MeasuredStep stack_step(int layers, std::int64_t width, std::int64_t rows) {
    return {[=](Device& device) {
                auto model = std::make_unique<Sequential>();
                for (int layer = 0; layer < layers; ++layer)
                    model->add<Linear>(
                        ParameterInit{device, DType::f32, 0, std::to_string(layer)},
                        width, width, false);
                return model;
            },
            [=](Device& device) {
                return MicroBatch{device.empty({rows, width}, DType::f32),
                                  device.empty({rows, width}, DType::f32)};
            }};
}

/// Returns a step of GPT-2 with 124 million parameters. Each device has `sequences`
/// sequences of 1,024 tokens, in micro-batches of at most 4.
MeasuredStep gpt2_step(std::int64_t sequences) {
    constexpr std::int64_t kTokens = 1024;
    constexpr std::int64_t kMost = 4;
    const std::int64_t together = std::min(sequences, kMost);
    return {[](Device& device) {
                GptSizes sizes{50257, kTokens, 12, {768, 12}};
                sizes.tied = true;
                return make_gpt({device, DType::f32, 0, ""}, sizes);
            },
            [=](Device& device) {
                return MicroBatch{device.empty({kTokens, together}, DType::i32),
                                  device.empty({kTokens, together}, DType::i32)};
            },
            cross_entropy_loss, static_cast<int>(sequences / together)};
}

/// Runs steps with servers on the first devices and workers on the other devices.
RunReport measure_servers(const MeasuredStep& step, int workers, int servers,
                          const ClusterSpec& spec, ServerPlan plan = {}, int steps = 1,
                          bool trace = false) {
    plan.servers = ranks_from(0, servers);
    plan.workers = ranks_from(servers, workers);
    return make_shapes_only_cluster(workers + servers, spec, trace)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model = step.make_model(device);
        ShardedServer sync(device, rank.world(), model->parameters(), plan);
        Sgd optimizer(sync.shards(), {0.1, 0.9, 0});
        const MicroBatch batch = sync.works() ? step.make_batch(device) : MicroBatch{};
        for (int i = 0; i < steps; ++i) {
            if (sync.works())
                train_step(device, *model, step.loss, {&batch, 1}, sync, optimizer);
            else
                sync.serve(optimizer);
        }
    });
}

/// Returns a cluster of up to 64 devices in which only the classroom's links take time.
ClusterSpec messages_alone() {
    ClusterSpec spec = load_cluster("classroom");
    spec.launch_seconds = spec.memory_bytes_per_second = 0;
    spec.flops_f32 = spec.flops_f64 = spec.flops_bf16 = 0;
    spec.devices_per_node = 64;
    return spec;
}

/// A layer of 1024 · 1024 numbers, S = 4 MiB.
constexpr std::int64_t kMillion = 1024;

MeasuredStep million() {
    return stack_step(1, kMillion, 1);
}

constexpr std::int64_t kMillionBytes = kMillion * kMillion * 4;

/// The number of layers into which the same weights are cut; each layer is a bucket.
constexpr int kParts = 4;
constexpr std::int64_t kPartBytes = kMillionBytes / kParts;

MeasuredStep million_in_parts() {
    return stack_step(kParts, kMillion / 2, 1);
}

std::int64_t bytes_received(const RankReport& rank) {
    std::int64_t bytes = 0;
    for (const Traffic& traffic : rank.traffic)
        bytes += traffic.bytes_received;
    return bytes;
}

/// Returns the bytes that the busiest link carries, sent and received.
std::int64_t busiest_link(const RunReport& report) {
    std::int64_t most = 0;
    for (const RankReport& rank : report.ranks)
        most = std::max(most, rank.bytes_sent() + bytes_received(rank));
    return most;
}

/// Compares a single parameter server with an all-reduce.
void server(LanguageLesson& lesson, Findings& found) {
    found.give({"numbers"_is = lesson.has_numbers(), "parts"_is = lesson.parts(),
                "steps"_is = lesson.language()->steps,
                "step_rows"_is = lesson.language()->rows_per_step(),
                "part_rows"_is = lesson.language()->micro_batch_rows,
                "parameters"_is = lesson.language()->sizes.parameters()});
    lesson.train_and_check(found, "server",
                           servers_on_workers(1, ServerPlan::Deal::ranges));

    constexpr int kWorkers = 8;
    found.give(
        {"million"_is = kMillion * kMillion, "workers"_is = kWorkers,
         "server_bytes"_is = Figure::memory(std::int64_t{2} * kWorkers * kMillionBytes)});
    for (const int workers : {1, 2, 4, kWorkers, 16}) {
        const RunReport served = measure_servers(million(), workers, 1, messages_alone());
        const RunReport reduced =
            measure(million(), workers, messages_alone(), all_reduce_strategy);
        found.row("server_costs",
                  {"workers"_is = workers,
                   "server_link"_is = Figure::memory(busiest_link(served)),
                   "server_time"_is = Figure::time(served.makespan()),
                   "ring_link"_is = Figure::memory(busiest_link(reduced)),
                   "ring_time"_is = Figure::time(reduced.makespan())});
        if (workers != kWorkers) continue;
        found.equal("server_link", Figure::bytes(busiest_link(served)),
                    2.0 * workers * kMillionBytes);
        found.equal("server_time", Figure::time(served.makespan()),
                    std::int64_t{2} * workers *
                        message_time(messages_alone().inside, kMillionBytes));
    }
}

/// Returns the maximum number of bytes on a server, if whole parameters are assigned to
/// the servers in turn.
std::int64_t most_by_number(const std::vector<std::int64_t>& sizes, std::size_t servers) {
    std::vector<std::int64_t> held(servers);
    for (std::size_t i = 0; i < sizes.size(); ++i)
        held[i % servers] += sizes[i];
    return std::ranges::max(held);
}

/// Compares ways to spread GPT-2's parameters over four servers.
void deal_out(Findings& found) {
    std::vector<std::int64_t> sizes;  // in the model's order
    measure(gpt2_step(1), 1, messages_alone(), [&](Rank& rank, Module& model) {
        for (const Parameter* parameter : model.parameters())
            sizes.push_back(parameter->value.bytes());
        return all_reduce_strategy(rank, model);
    });
    const auto all = std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    const RunReport whole = measure_servers(
        gpt2_step(1), 1, 4, messages_alone(),
        ServerPlan{{}, {}, ServerPlan::Deal::whole, BucketSizes::all_in_one()});
    std::int64_t most = 0;
    for (int server = 0; server < 4; ++server)
        most = std::max(most, whole.ranks[server].bytes_sent());
    found.give({"deal_even"_is = Figure::memory(all / 4),
                "deal_whole"_is = Figure::memory(most),
                "deal_by_number"_is = Figure::memory(most_by_number(sizes, 4)),
                "deal_largest"_is = Figure::memory(std::ranges::max(sizes))});
}

/// Measures several servers. With a server on each worker, a step costs as much as a
/// reduce-scatter and an all-gather.
void servers(LanguageLesson& lesson, Findings& found) {
    lesson.train_and_check(found, "two_servers",
                           servers_on_workers(2, ServerPlan::Deal::whole));
    lesson.train_and_check(found, "servers_everywhere",
                           servers_on_workers(lesson.parts(), ServerPlan::Deal::ranges));

    constexpr int kWorkers = 8;
    found.give("sharded_bytes", Figure::memory(2 * kMillionBytes * 7 / kWorkers));
    for (const int servers : {1, 2, 4, 8}) {
        const RunReport dedicated =
            measure_servers(million(), kWorkers, servers, messages_alone());
        const RunReport colocated =
            measure(million(), kWorkers, messages_alone(),
                    servers_on_workers(servers, ServerPlan::Deal::ranges));
        const RunReport early =
            measure_servers(million_in_parts(), kWorkers, servers, messages_alone(),
                            {{}, {}, ServerPlan::Deal::ranges, {kPartBytes, kPartBytes}});
        found.row("server_numbers",
                  {"servers"_is = servers,
                   "beside_link"_is = Figure::memory(busiest_link(dedicated)),
                   "beside_time"_is = Figure::time(dedicated.makespan()),
                   "beside_early"_is = Figure::time(early.makespan()),
                   "on_link"_is = Figure::memory(busiest_link(colocated)),
                   "on_time"_is = Figure::time(colocated.makespan())});
        if (servers == kWorkers)
            found.equal("early_time", Figure::time(early.makespan()),
                        std::int64_t{kParts + 1} * kWorkers *
                            message_time(messages_alone().inside, kPartBytes / kWorkers));
    }
    const RunReport everywhere =
        measure(million(), kWorkers, messages_alone(),
                servers_on_workers(kWorkers, ServerPlan::Deal::ranges));
    const RunReport collectives =
        measure(million(), kWorkers, messages_alone(), synced_by<Zero1>());
    found.equal("sharded_link", Figure::bytes(everywhere.ranks[0].bytes_sent()),
                2.0 * (kWorkers - 1) / kWorkers * kMillionBytes);
    found.equal("sharded_messages", everywhere.ranks[0].messages_sent(),
                collectives.ranks[0].messages_sent());
    found.equal("sharded_time", Figure::time(everywhere.makespan()),
                collectives.makespan());
    deal_out(found);
}

/// Trains as nn.DataParallel does: device 0 gets all batches of a step.
RunReport train_one_process(Cluster& cluster, const Training& training) {
    return cluster.run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model =
            training.make_model({device, training.dtype, training.seed, ""});
        const auto optimizer = training.make_optimizer(model->parameters());
        const auto step = [&](int i) {
            std::vector<MainBatch> batches;
            for (const HostBatch& host : training.batches(0, i)) {
                MainBatch batch{host.input.shape(), host.input.dtype()};
                batch.weight = host.weight;
                if (rank.index() == 0) {
                    batch.input = device.upload(host.input);
                    batch.target = device.upload(host.target);
                }
                batches.push_back(batch);
            }
            return one_process_step(device, rank.world(), *model, training.loss, batches,
                                    *optimizer);
        };
        train(rank, model->parameters(), training.steps, step, {});
    });
}

/// Measures nn.DataParallel; device 0 has the rows of all devices.
RunReport measure_one_process(int devices, int layers, std::int64_t width,
                              std::int64_t rows, const ClusterSpec& spec, int steps = 1,
                              bool trace = false) {
    const MeasuredStep step = stack_step(layers, width, rows);
    return make_shapes_only_cluster(devices, spec, trace)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model = step.make_model(device);
        Sgd optimizer(rank.index() == 0 ? model->parameters() : std::vector<Parameter*>(),
                      {0.1, 0.9, 0});
        MainBatch batch{{rows * devices, width}, DType::f32};
        if (rank.index() == 0) {
            batch.input = device.empty(batch.shape, DType::f32);
            batch.target = device.empty(batch.shape, DType::f32);
        }
        for (int i = 0; i < steps; ++i)
            one_process_step(device, rank.world(), *model, step.loss, {&batch, 1},
                             optimizer);
    });
}

// The sizes with which nn.DataParallel is measured.
constexpr int kProcessDevices = 4;
constexpr int kProcessLayers = 4;
constexpr std::int64_t kProcessWidth = 1024;
constexpr std::int64_t kProcessRows = 256;  // on each device

/// Trains as nn.DataParallel does, and measures its step.
void one_process(LanguageLesson& lesson, Findings& found) {
    const auto whole = std::make_shared<LanguageTask>(*lesson.language());
    whole->micro_batch_rows = lesson.language()->rows_per_step();
    whole->micro_batches = 1;
    lesson.check_against_one(
        found, "one_process",
        train_one_process(*lesson.devices(lesson.parts()),
                          language_training(
                              whole, lesson.options(), [](int) { return 0; }, 1)));

    constexpr int kDevices = kProcessDevices;
    const std::int64_t values = kProcessLayers * kProcessWidth * kProcessWidth * 4;
    // Bytes of a device's inputs. Its predictions have as many bytes.
    const std::int64_t rows = kProcessRows * kProcessWidth * 4;
    const RunReport report =
        measure_one_process(kDevices, kProcessLayers, kProcessWidth, kProcessRows,
                            load_cluster("classroom"), 1, true);
    found.give({"process_devices"_is = kDevices,
                "process_values"_is = Figure::memory(values),
                "process_rows"_is = Figure::memory(rows)});
    const std::int64_t others = (kDevices - 1) * rows;
    found.give({"process_sent"_is = Figure::memory(values + 2 * others),
                "process_once"_is = Figure::memory(values + others)});
    found.equal("process_bytes", Figure::bytes(report.ranks[0].bytes_sent()),
                values + 2 * others);
    for (int device = 0; device < kDevices; ++device) {
        const RankReport& rank = report.ranks[device];
        found.row("process_ranks",
                  {"device"_is = device, "sent"_is = Figure::memory(rank.bytes_sent()),
                   "received"_is = Figure::memory(bytes_received(rank)),
                   "busy"_is = Figure::percent(
                       100.0 * ratio(rank.time.compute, report.makespan())),
                   "held"_is = Figure::memory(rank.memory.peak)});
    }
    found.timeline("process_step", report);
    lesson.record_run("process_step", report);
}

// A stack of layers in which reducing a gradient takes about as long as computing it.
constexpr int kStackLayers = 6;
constexpr int kStackDevices = 4;
constexpr std::int64_t kStackWidth = 512;
constexpr std::int64_t kStackRows = 400;
constexpr std::int64_t kStackLayerBytes = kStackWidth * kStackWidth * 4;

BucketOptions sized(std::int64_t bytes, std::optional<std::int64_t> first_bytes = {}) {
    BucketOptions options;
    options.sizes = {bytes, first_bytes.value_or(bytes)};
    options.broadcast = options.rebuild = false;
    return options;
}

/// Returns the time of the two matrix products in a layer's backward.
Picoseconds layer_backward(const ClusterSpec& spec) {
    const std::int64_t weight = kStackWidth * kStackWidth;
    const std::int64_t data = kStackRows * kStackWidth;
    const std::int64_t flops = 2 * kStackRows * weight;
    return operation_time(spec, flops, 4 * (2 * data + weight), DType::f32) +
           operation_time(spec, flops, 4 * (2 * data + 2 * weight), DType::f32);
}

/// Returns the percentage of a usual step in which a device waits.
Figure waits_in(const UsualStep& step, std::size_t device) {
    return Figure::percent(100.0 * ratio(step.waiting(device), step.time()));
}

/// Compares the same step with nn.DataParallel and with DistributedDataParallel.
void compare_both(Findings& found) {
    const ClusterSpec spec = load_cluster("classroom");
    const UsualStep one([&](int steps) {
        return measure_one_process(kProcessDevices, kProcessLayers, kProcessWidth,
                                   kProcessRows, spec, steps);
    });
    BucketOptions layer_by_layer;  // broadcasts values at the start, and rebuilds buckets
    layer_by_layer.sizes.bytes = kProcessWidth * kProcessWidth * 4;
    const UsualStep many =
        usual_step(stack_step(kProcessLayers, kProcessWidth, kProcessRows),
                   kProcessDevices, spec, in_buckets(layer_by_layer));
    for (const auto& [name, step] : {std::pair{"dp", &one}, std::pair{"ddp", &many}}) {
        const auto give = [&, name = name](const char* what, Figure figure) {
            found.give(fmt::format("{}.{}", name, what), figure);
        };
        const std::size_t last = kProcessDevices - 1;
        give("broadcast", Figure::memory(step->sent(Verb::broadcast)));
        give("reduced", Figure::memory(step->sent(Verb::reduce)));
        give("all_reduced", Figure::memory(step->sent(Verb::all_reduce)));
        give("first_holds", Figure::memory(step->run().ranks[0].memory.peak));
        give("last_holds", Figure::memory(step->run().ranks[last].memory.peak));
        give("first_waits", waits_in(*step, 0));
        give("last_waits", waits_in(*step, last));
        give("time", Figure::time(step->time()));
    }
}

/// Compares ways to reduce gradients: one by one, all at once, or while backward runs.
void buckets(LanguageLesson& lesson, Findings& found) {
    BucketOptions options = sized(600, 200);  // small buckets for a small model
    options.broadcast = options.rebuild = true;
    lesson.train_and_check(found, "in_buckets", in_buckets(options));

    const ClusterSpec spec = load_cluster("classroom");
    const MeasuredStep step = stack_step(kStackLayers, kStackWidth, kStackRows);
    found.give({"stack_layers"_is = kStackLayers, "stack_width"_is = kStackWidth,
                "stack_devices"_is = kStackDevices,
                "layer_bytes"_is = Figure::memory(kStackLayerBytes)});
    const Picoseconds backward = layer_backward(spec);
    const Picoseconds reduce =
        std::int64_t{2} * (kStackDevices - 1) *
        message_time(spec.inside, kStackLayerBytes / kStackDevices);
    found.give({"layer_backward"_is = Figure::time(backward),
                "layer_reduce"_is = Figure::time(reduce),
                "reduce_all"_is = Figure::time(kStackLayers * reduce)});

    const auto show = [&](const std::string& name, const RunReport& report) {
        found.timeline(name + "_step", report);
        lesson.record_run(name, report);
    };
    const auto run = [&](const std::string& name, const MakeStrategy& strategy) {
        const UsualStep usual = usual_step(step, kStackDevices, spec, strategy);
        found.give(name, {"exposed"_is = Figure::time(usual.waiting(0)),
                          "time"_is = Figure::time(usual.time())});
        show(name, measure(step, kStackDevices, spec, strategy, 1, true));
        return usual.waiting(0);
    };
    const Picoseconds behind = run("one_by_one", all_reduce_strategy);
    run("at_once", in_buckets(sized(kStackLayers * kStackLayerBytes)));
    const Picoseconds overlapped = run("beside", in_buckets(sized(kStackLayerBytes)));
    found.equal("exposed_behind", Figure::time(behind), kStackLayers * reduce);
    const Picoseconds expected =
        std::max(reduce, kStackLayers * reduce - (kStackLayers - 1) * backward);
    found.give("exposed_least", Figure::time(expected));
    found.equal("exposed_beside", Figure::time(overlapped), expected);
    const auto served = [&](BucketSizes sizes, int steps, bool trace = false) {
        return measure_servers(step, kStackDevices, kStackDevices, spec,
                               {{}, {}, ServerPlan::Deal::ranges, sizes}, steps, trace);
    };
    const auto served_time = [&](BucketSizes sizes) {
        return Figure::time(
            UsualStep([&](int steps) { return served(sizes, steps); }).time());
    };
    const BucketSizes by_layer{kStackLayerBytes, kStackLayerBytes};
    found.give({"served_at_once"_is = served_time(BucketSizes::all_in_one()),
                "served_by_layer"_is = served_time(by_layer)});
    show("served", served(by_layer, 1, true));
    compare_both(found);
}

/// Measures ways to compress gradients before they are sent.
void compress(LanguageLesson& lesson, Findings& found) {
    constexpr int kDevices = 16;
    constexpr std::ptrdiff_t kLastLosses = 10;
    const ClusterSpec spec = load_cluster("h100-data-sheet");
    found.give("compress_devices", kDevices);
    const bool rounds = lesson.dtype() != DType::bf16;
    const std::vector<std::pair<const char*, MakeStrategy>> ways{
        {"whole", in_buckets(sized(25 * kMiB, kMiB))},
        {"rounded", synced_by<RoundedAllReduce>(BucketSizes{25 * kMiB, kMiB})},
        {"factors", synced_by<PowerSgd>(PowerSgdOptions{4, 0})}};
    std::int64_t whole = 0;
    for (const auto& [name, strategy] : ways) {
        const RunReport report = measure(gpt2_step(4), kDevices, spec, strategy);
        const std::int64_t sent = report.ranks[0].bytes_sent();
        Findings& row =
            found.row("compressions",
                      {"way"_is = name, "sent"_is = Figure::memory(sent),
                       "time"_is = Figure::time(
                           usual_step(gpt2_step(4), kDevices, spec, strategy).time())});
        if (name == std::string("whole")) whole = sent;
        if (name == std::string("rounded"))
            found.equal("rounded_bytes", Figure::bytes(sent),
                        static_cast<double>(whole) / 2);
        if (!lesson.has_numbers() || (!rounds && name == std::string("rounded")))
            continue;
        Training training = language_training(
            lesson.language(), lesson.options(), [](int rank) { return rank; }, 1);
        training.strategy = name == std::string("whole") ? all_reduce_strategy : strategy;
        const std::vector<double> losses =
            losses_of(train(*lesson.devices(lesson.parts()), training));
        const auto last = std::min(std::ssize(losses), kLastLosses);
        row.give("loss", Figure::decimals(
                             std::accumulate(losses.end() - last, losses.end(), 0.0) /
                                 static_cast<double>(last),
                             2));
    }
}

/// Measures the exposed time of GPT-2 on GPUs, for several bucket sizes.
void overlap(LanguageLesson& lesson, Findings& found) {
    constexpr int kDevices = 8;
    constexpr std::int64_t kSequences = 4;
    const ClusterSpec spec = load_cluster("h100-data-sheet");
    const MeasuredStep step = gpt2_step(kSequences);
    found.give({"gpt_devices"_is = kDevices, "gpt_sequences"_is = kSequences});

    std::vector<Picoseconds> curve;
    const auto mebibytes = [](std::int64_t count) {
        return std::pair{fmt::format("{} MiB", count), count * kMiB};
    };
    for (const auto& [size, bytes] :
         {std::pair{std::string("each"), std::int64_t{0}}, mebibytes(1), mebibytes(4),
          mebibytes(16), mebibytes(25), mebibytes(64), mebibytes(160),
          std::pair{std::string("one"), BucketSizes::all_in_one().bytes}}) {
        const RunReport report = measure(step, kDevices, spec, in_buckets(sized(bytes)));
        const Traffic& traffic = report.ranks[0].traffic.front();
        found.row("curve",
                  {"size"_is = size, "buckets"_is = traffic.calls,
                   "exposed"_is = Figure::time(report.ranks[0].time.waiting),
                   "hidden"_is = Figure::time(report.ranks[0].time.communication -
                                              report.ranks[0].time.waiting)});
        curve.push_back(report.ranks[0].time.waiting);
    }
    const auto least = std::ranges::min_element(curve);
    found.equal("inside", least != curve.begin() && least != curve.end() - 1 ? 1 : 0, 1);
    found.give({"curve_least"_is = Figure::time(*least),
                "curve_each"_is = Figure::time(curve.front()),
                "curve_one"_is = Figure::time(curve.back())});

    compress(lesson, found);
    constexpr std::int64_t kTable = std::int64_t{50257} * 768 * 4;
    found.give(
        {"table_bytes"_is = Figure::memory(kTable),
         "table_time"_is = Figure::time(std::int64_t{2} * (kDevices - 1) *
                                        message_time(spec.inside, kTable / kDevices))});
}

/// The result of training with an asynchronous server and one slower worker.
struct StaleTraining {
    std::vector<StaleUpdate> updates;
    RunReport report;
    /// The loss of a worker's micro-batch, and the time at the end of its forward.
    struct Loss {
        Picoseconds time = 0;
        double loss = 0;
    };
    std::vector<Loss> losses;  ///< ordered by time
};

// lesson: stale-training
StaleTraining train_stale(const std::shared_ptr<const LanguageTask>& task,
                          const LessonOptions& options, const ClusterSpec& spec,
                          std::int64_t bound) {
    const Training training = language_training(
        task, options, [](int worker) { return worker; }, 1);
    StaleTraining result;
    sim::ClusterOptions cluster;
    cluster.ranks = task->micro_batches + 1;
    cluster.spec = spec;
    cluster.trace = true;
    result.report = sim::make_cluster(cluster)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto pairs = pairs_with_server(rank.world());
        const auto model = training.make_model({device, DType::f32, training.seed, ""});
        const auto optimizer = training.make_optimizer(model->parameters());
        if (rank.index() == 0) {
            result.updates = serve_stale(device, pairs, model->parameters(), *optimizer,
                                         training.steps, bound);
            return;
        }
        const int worker = rank.index() - 1;
        ServedWorker sync(device, *pairs[worker], model->parameters());
        for (int step = 0; step < training.steps; ++step) {
            const auto mine = upload(device, training.batches(worker, step));
            const Tensor loss =
                train_step(device, *model, training.loss, mine, sync, *optimizer);
            rank.keep_value("loss", device.peek(loss).at(0) * task->micro_batches);
        }
    });
    // lesson: end
    std::vector<std::size_t> next(result.report.ranks.size());
    for (const TraceEvent& event : result.report.trace) {
        if (!event.is_phase() || event.name.rfind("forward", 0) != 0) continue;
        const auto rank = static_cast<std::size_t>(event.rank);
        const auto& losses = result.report.ranks[rank].series.at("loss");
        result.losses.push_back({event.end, losses.at(next[rank]++)});
    }
    std::ranges::sort(result.losses, {}, &StaleTraining::Loss::time);
    return result;
}

/// Returns the mean of the last 24 losses (or fewer) that were computed up to `time`.
double loss_at(const StaleTraining& training, Picoseconds time) {
    constexpr std::size_t kLast = 24;
    std::vector<double> seen;
    for (const StaleTraining::Loss& loss : training.losses)
        if (loss.time <= time) seen.push_back(loss.loss);
    const std::size_t first = seen.size() - std::min(seen.size(), kLast);
    double sum = 0;
    for (std::size_t i = first; i < seen.size(); ++i)
        sum += seen[i];
    return seen.empty() ? 0 : sum / static_cast<double>(seen.size() - first);
}

std::int64_t samples_at(const StaleTraining& training, Picoseconds time) {
    return std::ranges::count_if(training.losses, [&](const StaleTraining::Loss& loss) {
        return loss.time <= time;
    });
}

/// Measures training with a slow worker, for several bounds on the server's staleness.
void stragglers(LanguageLesson& lesson, Findings& found) {
    constexpr int kWorkers = 4;
    const double slowness = lesson.options().values.number("slowness");
    const auto task =
        std::make_shared<LanguageTask>(*make_language_task(lesson.options(), kWorkers));
    ClusterSpec spec = load_cluster("classroom");
    spec.stragglers = {{kWorkers, slowness, 1}};
    found.give({"slowness"_is = Figure::count(slowness), "stale_workers"_is = kWorkers});

    const std::vector<std::optional<std::int64_t>> bounds{0, 1, 4, 16, std::nullopt};
    std::vector<StaleTraining> runs;
    runs.reserve(bounds.size());
    for (const auto& bound : bounds)
        runs.push_back(
            train_stale(task, lesson.options(), spec, bound.value_or(INT64_MAX)));
    // At this time the fast workers of the last run have finished.
    const Picoseconds early = runs.back().report.ranks[1].time.end;
    found.give("early", Figure::time(early));
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const StaleTraining& run = runs[i];
        Findings& row = found.row("bounds");
        if (bounds[i])
            row.give("bound", *bounds[i]);
        else
            row.give("bound", "none");
        std::int64_t missed = 0;
        std::int64_t stale = 0;
        for (const StaleUpdate& update : run.updates) {
            missed += update.missed;
            stale = std::max(stale, update.staleness);
        }
        row.give(
            {"stale"_is = stale,
             "missed"_is = Figure::decimals(ratio(missed, run.updates.size()), 1),
             "gradients"_is = samples_at(run, early),
             "loss_early"_is = Figure::decimals(loss_at(run, early), 2),
             "time"_is = Figure::time(run.report.makespan()),
             "loss_end"_is = Figure::decimals(loss_at(run, run.report.makespan()), 2)});
        if (bounds[i] == 4) found.at_most("staleness", static_cast<double>(stale), 4);
    }
}

/// Tries four computations whose results on shares do not add up to the batch's result.
void not_parallel(Findings& found) {
    constexpr int kRanks = 3;
    constexpr double kNear = 1e-12;  // f64
    found.give("shares_ranks", kRanks);
    double worst_cure = 0;
    for (const std::string& what : kNotParallel) {
        const NotParallelOutcome outcome = try_not_parallel(what, kRanks);
        found.row("shares",
                  {"what"_is = what, "mistaken"_is = Figure::power(outcome.mistaken),
                   "found"_is = outcome.found.empty() ? "nothing" : outcome.found});
        if (outcome.found.empty()) found.give("silent", what);
        worst_cure = outcome.cured <= worst_cure ? worst_cure : outcome.cured;
    }
    found.at_most("cures", worst_cure, kNear);
}

/// Measures a step on 1 to 64 devices: strong scaling and weak scaling.
void scaling(Findings& found) {
    constexpr std::int64_t kSequences = 64;
    constexpr std::int64_t kEach = 4;
    const ClusterSpec spec = load_cluster("h100-data-sheet");
    found.give({"batch_sequences"_is = kSequences, "each_sequences"_is = kEach});
    const BucketOptions options;
    const auto step_of = [&](int devices, std::int64_t sequences) {
        return usual_step(gpt2_step(sequences), devices, spec, in_buckets(options));
    };
    // Returns the bytes of values, gradients and momentum on one of `devices` devices.
    const auto state_on = [&](int devices) {
        const RunReport report =
            measure(gpt2_step(1), devices, spec, in_buckets(options));
        std::int64_t bytes = 0;
        for (const MemoryCategory category :
             {MemoryCategory::parameters, MemoryCategory::gradients,
              MemoryCategory::optimizer})
            bytes +=
                report.ranks.back().memory.at_peak[static_cast<std::size_t>(category)];
        return Figure::memory(bytes);
    };
    found.give({"state_alone"_is = state_on(1), "state_each"_is = state_on(64)});
    const auto strong_alone = static_cast<double>(step_of(1, kSequences).time());
    const auto weak_alone = static_cast<double>(step_of(1, kEach).time());
    for (const int devices : {1, 2, 4, 8, 16, 32, 64}) {
        const UsualStep strong = step_of(devices, kSequences / devices);
        const double faster = strong_alone / static_cast<double>(strong.time());
        Findings& row = found.row(
            "strong", {"devices"_is = devices, "time"_is = Figure::time(strong.time()),
                       "exposed"_is = Figure::time(strong.waiting(0)),
                       "faster"_is = Figure::decimals(faster, 1),
                       "part"_is = Figure::percent(100 * faster / devices)});
        if (strong.waiting(0) > 0)
            row.give("most",
                     Figure::decimals(
                         strong_alone / static_cast<double>(strong.waiting(0)), 0));

        const UsualStep weak = step_of(devices, kEach);
        found.row("weak", {"devices"_is = devices, "batch"_is = kEach * devices,
                           "time"_is = Figure::time(weak.time()),
                           "exposed"_is = Figure::time(weak.waiting(0)),
                           "part"_is = Figure::percent(
                               100 * weak_alone / static_cast<double>(weak.time()))});
    }
}

}  // namespace

LessonEntry data_parallel_lesson() {
    LessonEntry entry;
    entry.slug = "data-parallel";
    entry.folder = "02_data_parallel";
    entry.most_ranks = 64;
    entry.settings = language_settings();
    entry.settings.push_back({"slowness",
                              "how many times as long the slow worker of step 6 takes",
                              Real{1, 1000, 4}});
    entry.takes_text = true;
    entry.make = lesson_of<LanguageLesson>({{"server", server},
                                            {"servers", servers},
                                            {"one_process", one_process},
                                            {"buckets", buckets},
                                            {"overlap", overlap},
                                            {"stragglers", stragglers},
                                            {"not_parallel", not_parallel},
                                            {"scaling", scaling}});
    return entry;
}

}  // namespace lockstep::lessons

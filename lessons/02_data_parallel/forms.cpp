#include "lessons/02_data_parallel/forms.hpp"

#include <algorithm>
#include <numeric>

#include "sim/cluster.hpp"
#include "src/nn/gpt.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/data_parallel_one_process.hpp"
#include "src/parallel/parameter_server.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep::lessons {

namespace {

std::vector<int> ranks_from(int first, int count) {
    std::vector<int> ranks(static_cast<std::size_t>(count));
    std::iota(ranks.begin(), ranks.end(), first);
    return ranks;
}

}  // namespace

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

MakeStrategy in_buckets(const BucketOptions& options) {
    return [options](Rank& rank, Module& model) {
        declare_replicas_of(rank.world(), model);
        return std::make_unique<BucketedDataParallel>(rank.device(), rank.world(),
                                                      model.parameters(), options);
    };
}

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

RunReport measure(const MeasuredStep& step, int devices, const ClusterSpec& spec,
                  const MakeStrategy& strategy, int steps, bool trace) {
    return make_shapes_only_cluster(devices, spec, trace)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model = step.make_model(device);
        const auto around = step.around ? step.around(device, *model) : nullptr;
        const auto sync = strategy(rank, *model);
        const auto optimizer =
            step.make_optimizer
                ? step.make_optimizer(sync->shards())
                : std::make_unique<Sgd>(sync->shards(), SgdOptions{0.1, 0.9, 0});
        const std::vector<MicroBatch> batches(
            static_cast<std::size_t>(step.micro_batches), step.make_batch(device));
        for (int i = 0; i < steps; ++i)
            train_step(device, *model, step.loss, batches, *sync, *optimizer);
        sync->wait_for_values();
    });
}

std::int64_t UsualStep::sent(Verb verb) const {
    std::int64_t bytes = 0;
    for (const auto& [report, sign] : {std::pair{&three_, 1}, std::pair{&two_, -1}})
        for (const RankReport& rank : report->ranks)
            bytes += sign * rank.bytes_sent_by(name_of(verb));
    return bytes;
}

UsualStep usual_step(const MeasuredStep& step, int devices, const ClusterSpec& spec,
                     const MakeStrategy& strategy) {
    return UsualStep(
        [&](int steps) { return measure(step, devices, spec, strategy, steps); });
}

RunReport measure_servers(const MeasuredStep& step, int workers, int servers,
                          const ClusterSpec& spec, ServerPlan plan, int steps,
                          bool trace) {
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

RunReport measure_one_process(int devices, int layers, std::int64_t width,
                              std::int64_t rows, const ClusterSpec& spec, int steps,
                              bool trace) {
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
        ServedWorker sync(device, *pairs[static_cast<std::size_t>(worker)],
                          model->parameters());
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

}  // namespace lockstep::lessons

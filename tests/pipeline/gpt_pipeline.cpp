#include "tests/pipeline/gpt_pipeline.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/comm/mesh.hpp"
#include "src/nn/losses.hpp"
#include "src/nn/optimizer.hpp"
#include "src/parallel/train_step.hpp"
#include "src/pipeline/pipeline_gpt.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

constexpr SgdOptions kSgd{0.05, 0.9, 0};

/// Character `i` of a text that has something to learn.
std::int32_t character(std::int64_t i, std::int64_t vocabulary) {
    return static_cast<std::int32_t>((i * i + i / 3) % vocabulary);
}

/// Micro-batches [first, first + count) of a step.
std::vector<MicroBatch> micro_batches(Device& device, const GptTask& task, int step,
                                      int first, int count) {
    std::vector<MicroBatch> batches;
    for (int i = first; i < first + count; ++i) {
        HostTensor ids({task.length, task.batch}, DType::i32);
        HostTensor next({task.length, task.batch}, DType::i32);
        for (std::int64_t e = 0; e < ids.elements(); ++e) {
            const std::int64_t place = (step * task.micro_batches + i) * ids.elements() +
                                       e % task.batch * task.length + e / task.batch;
            ids.set(e, character(place, task.sizes.vocabulary));
            next.set(e, character(place + 1, task.sizes.vocabulary));
        }
        batches.push_back(
            {device.upload(ids), device.upload(next), 1.0 / task.micro_batches});
    }
    return batches;
}

void keep(Rank& rank, const std::vector<Parameter*>& parameters,
          const std::string& prefix, Tensor Parameter::*tensor) {
    for (const Parameter* parameter : parameters)
        rank.keep(prefix + parameter->name(), parameter->*tensor);
}

/// What ranks kept under `prefix`; requires the same bits where several did.
std::map<std::string, HostTensor> kept(const RunReport& report, const GptTask& task,
                                       const std::string& prefix) {
    std::map<std::string, HostTensor> all;
    for (const RankReport& rank : report.ranks) {
        for (const auto& [name, tensor] : rank.kept) {
            if (!name.starts_with(prefix)) continue;
            const auto [it, added] = all.emplace(name.substr(prefix.size()), tensor);
            if (!added && task.correct()) {
                CAPTURE(name);
                REQUIRE(it->second == tensor);
            }
        }
    }
    return all;
}

GptTrained trained(RunReport report, const GptTask& task) {
    GptTrained result;
    result.losses.assign(static_cast<std::size_t>(task.steps), 0);
    for (const RankReport& rank : report.ranks)
        if (const auto found = rank.series.find("loss"); found != rank.series.end())
            for (std::size_t i = 0; i < found->second.size(); ++i)
                result.losses[i] += found->second[i];
    result.first_gradients = kept(report, task, "grad/");
    result.values = kept(report, task, "value/");
    result.report = std::move(report);
    return result;
}

}  // namespace

GptTask small_gpt(bool tied) {
    GptTask task;
    task.sizes.vocabulary = 11;
    task.sizes.context = 6;
    task.sizes.layers = 4;
    task.sizes.block.hidden = 8;
    task.sizes.block.heads = 2;
    task.sizes.tied = tied;
    return task;
}

GptTrained train_alone(const GptTask& task) {
    RunReport report = sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto gpt = make_gpt({device, task.dtype, 1, ""}, task.sizes);
        AllReduceSync sync(gpt->parameters());
        Sgd optimizer(gpt->parameters(), kSgd);
        for (int step = 0; step < task.steps; ++step) {
            const auto batches = micro_batches(device, task, step, 0, task.micro_batches);
            const Tensor loss =
                train_step(device, *gpt, cross_entropy_loss, batches, sync, optimizer);
            rank.keep_value("loss", device.peek(loss).at(0));
            if (step == 0) keep(rank, gpt->parameters(), "grad/", &Parameter::gradient);
        }
        keep(rank, gpt->parameters(), "value/", &Parameter::value);
    });
    return trained(std::move(report), task);
}

GptTrained train_pipeline(const GptTask& task, const Schedule& schedule, int replicas) {
    const PipelinePlan plan(schedule);
    const auto cut = cut_gpt(task.sizes, schedule);
    const int share = task.micro_batches / replicas;
    sim::ClusterOptions options;
    options.ranks = schedule.stages * replicas;
    options.check = task.check;
    const auto cluster = sim::make_cluster(options);
    RunReport report = cluster->run([&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"pp", schedule.stages}, {"dp", replicas}});
        Communicator& line = mesh["pp"];
        const GptStage stage = make_gpt_stage({device, task.dtype, 1, ""}, task.sizes,
                                              schedule, line.rank(), cut);
        Pipeline pipeline(device, line, plan, stage.modules(),
                          gpt_boundary(task.sizes, task.dtype));
        std::unique_ptr<Communicator> sharers;
        if (!task.forget_tie) sharers = tie_gpt(pipeline, stage, schedule, line);
        pipeline.tie_copies();
        if (replicas > 1 && !task.forget_replicas) pipeline.reduce_over(mesh["dp"]);
        std::vector<std::unique_ptr<Sgd>> optimizers;
        std::vector<Optimizer*> updates;
        for (const auto& chunk : stage.chunks) {
            optimizers.push_back(std::make_unique<Sgd>(chunk->parameters(), kSgd));
            updates.push_back(optimizers.back().get());
        }
        pipeline.update_by(updates);
        for (int step = 0; step < task.steps; ++step) {
            const auto batches =
                micro_batches(device, task, step, mesh.coordinate("dp") * share, share);
            const Tensor loss = pipeline.run(cross_entropy_loss, batches);
            if (loss) rank.keep_value("loss", device.peek(loss).at(0));
            if (step == 0) keep(rank, stage.parameters(), "grad/", &Parameter::gradient);
        }
        keep(rank, stage.parameters(), "value/", &Parameter::value);
    });
    return trained(std::move(report), task);
}

namespace {

double difference(const std::map<std::string, HostTensor>& a,
                  const std::map<std::string, HostTensor>& b) {
    if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
    double largest = 0;
    for (const auto& [name, tensor] : a) {
        const auto other = b.find(name);
        if (other == b.end() || other->second.shape() != tensor.shape())
            return std::numeric_limits<double>::infinity();
        double scale = 0;
        double apart = 0;
        for (std::int64_t i = 0; i < tensor.elements(); ++i) {
            scale = std::max(scale, std::abs(tensor.at(i)));
            apart = std::max(apart, std::abs(tensor.at(i) - other->second.at(i)));
        }
        const double relative = apart == 0 ? 0 : apart / scale;
        if (!(relative <= largest)) largest = relative;
    }
    return largest;
}

}  // namespace

double largest_difference(const GptTrained& a, const GptTrained& b) {
    if (a.losses.size() != b.losses.size())
        return std::numeric_limits<double>::infinity();
    double largest = std::max(difference(a.first_gradients, b.first_gradients),
                              difference(a.values, b.values));
    for (std::size_t i = 0; i < a.losses.size(); ++i) {
        const double relative = std::abs(a.losses[i] / b.losses[i] - 1);
        if (!(relative <= largest)) largest = relative;
    }
    return largest;
}

bool same_bits(const GptTrained& a, const GptTrained& b) {
    return a.losses == b.losses && a.first_gradients == b.first_gradients &&
           a.values == b.values;
}

}  // namespace lockstep::test

#include "tests/parallel/expert_task.hpp"

#include <fmt/format.h>

#include "src/comm/chunks.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep::test {

MixtureOfExperts::Sizes ExpertTask::sizes() const {
    MixtureOfExperts::Sizes sizes;
    sizes.hidden = kExpertHidden;
    sizes.of.count = experts;
    sizes.of.inner = 7;
    sizes.of.shared = shared;
    sizes.of.gate = gate;
    sizes.of.capacity = capacity;
    sizes.of.order = order;
    sizes.of.portions = portions;
    return sizes;
}

std::unique_ptr<Module> ExpertTask::make_model(
    const ParameterInit& init, std::shared_ptr<ExpertExchange> exchange) const {
    const ParameterInit mlp = init.child("mlp");
    auto model = std::make_unique<Sequential>();
    model->add<Linear>(init.child("in"), kExpertIn, kExpertHidden);
    model->add<Residual>(std::make_unique<MixtureOfExperts>(
        mlp, sizes(), std::move(exchange),
        shared > 0 ? make_swiglu_mlp(mlp.child("shared_experts"), kExpertHidden, shared)
                   : nullptr));
    model->add<Linear>(init.child("out"), kExpertHidden, kExpertOut);
    model->set_input_gradient(false);
    return model;
}

namespace {

std::pair<HostTensor, HostTensor> rows_of(std::int64_t step, int all, std::int64_t first,
                                          std::int64_t count) {
    const std::string name = fmt::format("{}", step);
    return {normal_values({all, kExpertIn}, "x" + name).rows(first, count),
            normal_values({all, kExpertOut}, "y" + name).rows(first, count)};
}

/// A rank that trains on rows `own` of all.
struct Learner {
    Rank& rank;
    const ExpertTask& task;
    Module& model;
    GradientSync& sync;
    Optimizer& optimizer;
    int all = 0;
    Chunk own{};
    int micro_batches = 1;

    void train(int steps) const {
        for (int number = 0; number < steps; ++number)
            step(number);
        sync.wait_for_values();
        keep_updated(rank, sync.shards());
        for (const Buffer& buffer : model.buffers())
            rank.keep("value/" + buffer.name, buffer.tensor);
    }

  private:
    void step(std::int64_t number) const {
        Device& device = rank.device();
        const auto layers = expert_layers(model);
        for (MixtureOfExperts* layer : layers)
            layer->set_noise((number * 1000 + own.begin) * task.experts);
        keep_loss(rank, train_step(device, model, mean_squared_error, batches(number),
                                   sync, optimizer));
        if (task.gate.biased)
            balance_by_bias(device, rank.world(), layers, task.bias_rate);
    }

    std::vector<MicroBatch> batches(std::int64_t step) const {
        Device& device = rank.device();
        std::vector<MicroBatch> batches;
        for (int i = 0; i < micro_batches; ++i) {
            const Chunk part = chunk(own.count, micro_batches, i);
            const auto [input, target] =
                rows_of(step, all, own.begin + part.begin, part.count);
            batches.push_back({device.upload(input), device.upload(target),
                               static_cast<double>(part.count) / all});
        }
        return batches;
    }
};

}  // namespace

Outcome train_experts_alone(const ExpertTask& task, int workers, int steps) {
    return outcome_of(*sim::make_cluster(1), [&](Rank& rank) {
        const auto model = task.make_model({rank.device(), DType::f64, 1, ""}, nullptr);
        AllReduceSync sync(model->parameters());
        const auto optimizer = adamw(model->parameters());
        const int all = rows_of_all(workers);
        Learner{rank, task, *model, sync, *optimizer, all, {0, all}}.train(steps);
    });
}

Outcome train_experts(const ExpertTask& task, const ExpertWorkers& workers, int steps) {
    sim::ClusterOptions options;
    options.ranks = 1;
    for (const Mesh::Axis& axis : workers.axes)
        options.ranks *= axis.size;
    options.check = workers.check;
    const int all = rows_of_all(options.ranks);
    return outcome_of(*sim::make_cluster(options), [&](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), workers.axes);
        const auto model =
            task.make_model({device, DType::f64, 1, ""}, workers.exchange(mesh));
        workers.declare(mesh, *model);
        const auto sync = workers.sync(device, mesh, *model);
        const auto optimizer = adamw(sync->shards());
        const Chunk own{rows_of_all(rank.index()), rows_of_worker(rank.index())};
        Learner{rank, task, *model, *sync, *optimizer, all, own, workers.micro_batches}
            .train(steps);
    });
}

std::shared_ptr<ExpertExchange> along_ep(Mesh& mesh) {
    std::vector<std::string> all;
    for (const Mesh::Axis& axis : mesh.axes())
        all.push_back(axis.name);
    return exchange_experts(mesh, {"ep"}, {.batch = all});
}

}  // namespace lockstep::test

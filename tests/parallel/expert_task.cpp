#include "tests/parallel/expert_task.hpp"

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

/// Trains on the rows `own` of all, and keeps what this rank updates.
void learn(Rank& rank, const ExpertTask& task, Module& model, GradientSync& sync,
           const OwnRows& own, int steps) {
    Device& device = rank.device();
    const auto optimizer = adamw(sync.shards());
    const auto layers = expert_layers(model);
    for (int step = 0; step < steps; ++step) {
        for (MixtureOfExperts* layer : layers)
            layer->set_noise((std::int64_t{step} * 1000 + own.rows.begin) * task.experts);
        // Its rows are as wide as these.
        const auto batches = batches_of(device, mlp_task(), step, own);
        keep_loss(rank, train_step(device, model, mean_squared_error, batches, sync,
                                   *optimizer));
        if (task.gate.biased)
            balance_by_bias(device, rank.world(), layers, task.bias_rate);
    }
    sync.wait_for_values();
    keep_updated(rank, sync.shards());
    for (const Buffer& buffer : model.buffers())
        rank.keep("value/" + buffer.name, buffer.tensor);
}

}  // namespace

Outcome train_experts_alone(const ExpertTask& task, int workers, int steps) {
    return outcome_of(*sim::make_cluster(1), [&](Rank& rank) {
        const auto model = task.make_model({rank.device(), DType::f64, 1, ""}, nullptr);
        AllReduceSync sync(model->parameters());
        learn(rank, task, *model, sync, all_rows(workers), steps);
    });
}

Outcome train_experts(const ExpertTask& task, const ExpertWorkers& workers, int steps) {
    sim::ClusterOptions options;
    options.ranks = MeshShape(workers.axes).ranks();
    options.check = workers.check;
    return outcome_of(*sim::make_cluster(options), [&](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), workers.axes);
        const auto model =
            task.make_model({device, DType::f64, 1, ""}, workers.exchange(mesh));
        workers.declare(mesh, *model);
        const auto sync = workers.sync(device, mesh, *model);
        learn(rank, task, *model, *sync,
              rows_of_worker(rank.index(), rank.size(), workers.micro_batches), steps);
    });
}

std::shared_ptr<ExpertExchange> along_ep(Mesh& mesh) {
    std::vector<std::string> all;
    for (const Mesh::Axis& axis : mesh.axes())
        all.push_back(axis.name);
    return exchange_experts(mesh, {"ep"}, {.batch = all});
}

}  // namespace lockstep::test

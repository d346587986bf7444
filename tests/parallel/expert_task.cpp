#include "tests/parallel/expert_task.hpp"

#include "src/nn/sequential.hpp"
#include "src/parallel/placement.hpp"

namespace lockstep::test {

ExpertSizes small_experts() {
    ExpertSizes experts;
    experts.count = 24;
    experts.inner = 7;
    experts.shared = 5;
    return experts;
}

namespace {

constexpr double kBiasRate = 0.02;  // for gates that choose experts by a bias

/// `exchange` may be null. Inputs and targets are mlp_task()'s.
std::unique_ptr<Module> make_model(Device& device, const ExpertSizes& experts,
                                   std::shared_ptr<ExpertExchange> exchange) {
    const ParameterInit init{device, DType::f64, 1, ""}, mlp = init.child("mlp");
    auto model = std::make_unique<Sequential>();
    model->add<Linear>(init.child("in"), 6, kExpertHidden);
    model->add<Residual>(std::make_unique<MixtureOfExperts>(
        mlp, MixtureOfExperts::Sizes{experts, kExpertHidden}, std::move(exchange),
        experts.shared > 0
            ? make_swiglu_mlp(mlp.child("shared_experts"), kExpertHidden, experts.shared)
            : nullptr));
    model->add<Linear>(init.child("out"), kExpertHidden, 3);
    model->set_input_gradient(false);
    return model;
}

/// Trains on `own`, this rank's rows, and keeps the parameters that this rank updates.
void learn(Rank& rank, const ExpertSizes& experts, Module& model, GradientSync& sync,
           const OwnRows& own, int steps) {
    Device& device = rank.device();
    const auto optimizer = adamw(sync.shards());
    const auto layers = expert_layers(model);
    for (int step = 0; step < steps; ++step) {
        for (MixtureOfExperts* layer : layers)
            layer->set_noise((std::int64_t{step} * 1000 + own.rows.begin) *
                             experts.count);
        const auto batches = batches_of(device, mlp_task(), step, own);
        keep_loss(rank, train_step(device, model, mean_squared_error, batches, sync,
                                   *optimizer));
        if (experts.gate.biased) balance_by_bias(device, rank.world(), layers, kBiasRate);
    }
    sync.wait_for_values();
    keep_updated(rank, sync.shards());
    for (const Buffer& buffer : model.buffers())
        rank.keep("value/" + buffer.name, buffer.tensor);
}

}  // namespace

Outcome train_experts_alone(const ExpertSizes& experts, int workers, int steps) {
    return outcome_of(*sim::make_cluster(1), [&](Rank& rank) {
        const auto model = make_model(rank.device(), experts, nullptr);
        AllReduceSync sync(model->parameters());
        learn(rank, experts, *model, sync, all_rows(workers), steps);
    });
}

Outcome train_experts(const ExpertSizes& experts, const ExpertWorkers& workers,
                      int steps) {
    sim::ClusterOptions options;
    options.ranks = MeshShape(workers.axes).ranks();
    options.check = workers.check;
    return outcome_of(*sim::make_cluster(options), [&](Rank& rank) {
        Device& device = rank.device();
        Mesh mesh(rank.world(), workers.axes);
        const auto model = make_model(device, experts, workers.exchange(mesh));
        workers.declare(mesh, *model);
        const auto sync = workers.sync(device, mesh, *model);
        learn(rank, experts, *model, *sync,
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

#include "lessons/assignments/pipeline_1f1b/grading/one_step.hpp"

#include <span>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/pipeline/pipeline.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kWidth = 3;
constexpr std::int64_t kRows = 2;  ///< of a micro-batch
constexpr int kReplicas = 2;
constexpr double kLearningRate = 0.5;

/// tanh(linear(x)).
std::unique_ptr<Module> make_layer(Device& device, int number) {
    auto layer = std::make_unique<Sequential>();
    layer->add<Linear>(ParameterInit{device, DType::f64, 1, std::to_string(number)},
                       kWidth, kWidth);
    layer->add<Tanh>(device);
    return layer;
}

/// (kRows, kWidth) each, of other values.
std::vector<MicroBatch> make_batches(Device& device, int count) {
    std::vector<MicroBatch> batches;
    for (int i = 0; i < count; ++i) {
        const Tensor x = device.empty({kRows, kWidth}, DType::f64);
        const Tensor target = device.empty({kRows, kWidth}, DType::f64);
        device.random_normal(x, RandomStream(2, "x"), 0, 1, i * x.elements());
        device.random_normal(target, RandomStream(2, "target"), 0, 1, i * x.elements());
        batches.push_back({x, target, 1.0 / count});
    }
    return batches;
}

void keep(Rank& rank, Module& module) {
    for (const Parameter* parameter : module.parameters()) {
        rank.keep("grad/" + parameter->name(), parameter->gradient);
        rank.keep("value/" + parameter->name(), parameter->value);
    }
}

StepResult kept_of(const RunReport& report) {
    StepResult all;
    for (const RankReport& rank : report.ranks)
        all.insert(rank.kept.begin(), rank.kept.end());
    return all;
}

std::unique_ptr<Cluster> cluster_of(int ranks) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.workers = 1;
    return sim::make_cluster(options);
}

}  // namespace

StepResult step_by(const Schedule& schedule) {
    const PipelinePlan plan(schedule);
    const int count = schedule.micro_batches;
    return kept_of(cluster_of(schedule.stages * kReplicas)->run([&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"pp", schedule.stages}, {"dp", kReplicas}});
        const auto layer = make_layer(device, mesh.coordinate("pp"));
        Sgd sgd(layer->parameters(), SgdOptions{kLearningRate, 0, 0});
        Pipeline pipeline(
            device, mesh["pp"], plan, {layer.get()},
            {[](const MicroBatch& batch) { return batch.input.shape(); }, DType::f64});
        pipeline.reduce_over(mesh["dp"]);
        pipeline.update_by({&sgd});
        const auto batches = make_batches(device, count * kReplicas);
        pipeline.run(mean_squared_error,
                     std::span(batches).subspan(
                         static_cast<std::size_t>(count * mesh.coordinate("dp")),
                         static_cast<std::size_t>(count)));
        keep(rank, *layer);
    }));
}

StepResult step_alone(int stages, int micro_batches) {
    return kept_of(cluster_of(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        Sequential stack;
        for (int layer = 0; layer < stages; ++layer)
            stack.add(make_layer(device, layer));
        accumulate_gradients(device, stack, mean_squared_error,
                             make_batches(device, micro_batches * kReplicas));
        Sgd(stack.parameters(), SgdOptions{kLearningRate, 0, 0}).step();
        keep(rank, stack);
    }));
}

}  // namespace lockstep::lessons

#include "lessons/assignments/trained_stack.hpp"

#include <map>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/core/require.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/pipeline/pipeline.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kStackWidth = 3;
constexpr std::int64_t kStackRows = 2;  ///< rows of a micro-batch
constexpr int kPipelines = 2;

/// Makes a layer tanh(linear(x)).
std::unique_ptr<Module> make_layer(Device& device, int number) {
    auto layer = std::make_unique<Sequential>();
    layer->add<Linear>(ParameterInit{device, DType::f64, 1, std::to_string(number)},
                       kStackWidth, kStackWidth);
    layer->add<Tanh>(device);
    return layer;
}

/// Makes `count` micro-batches, from number `first` on; their values all differ.
std::vector<MicroBatch> make_batches(Device& device, int first, int count,
                                     int per_update) {
    std::vector<MicroBatch> batches;
    for (int i = first; i < first + count; ++i) {
        const Tensor x = device.empty({kStackRows, kStackWidth}, DType::f64);
        const Tensor target = device.empty({kStackRows, kStackWidth}, DType::f64);
        device.random_normal(x, RandomStream(2, "x"), 0, 1, i * x.elements());
        device.random_normal(target, RandomStream(2, "target"), 0, 1, i * x.elements());
        batches.push_back({x, target, 1.0 / (per_update * kPipelines)});
    }
    return batches;
}

constexpr SgdOptions kSgd{0.5, 0, 0};

void keep(Rank& rank, Module& module) {
    for (const Parameter* parameter : module.parameters()) {
        rank.keep("grad/" + parameter->name(), parameter->gradient);
        rank.keep("value/" + parameter->name(), parameter->value);
    }
}

/// The results for each parameter, by name: "grad/0.weight", the last batch's gradient,
/// and "value/0.weight".
using TrainedStack = std::map<std::string, HostTensor>;

TrainedStack run_on(int ranks, const Program& program) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.workers = 1;
    TrainedStack all;
    for (const RankReport& rank : sim::make_cluster(options)->run(program).ranks)
        all.insert(rank.kept.begin(), rank.kept.end());
    return all;
}

/// Trains with the schedule. Throws UsageError if the schedule cannot train.
TrainedStack train_by(const Schedule& schedule, int per_update) {
    const PipelinePlan plan(schedule);
    const int count = schedule.micro_batches;
    return run_on(schedule.stages * kPipelines, [&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(), {{"pp", schedule.stages}, {"dp", kPipelines}});
        const auto layer = make_layer(device, mesh.coordinate("pp"));
        Sgd sgd(layer->parameters(), kSgd);
        Pipeline pipeline(
            device, mesh["pp"], plan, {layer.get()},
            {[](const MicroBatch& batch) { return batch.input.shape(); }, DType::f64});
        pipeline.reduce_over(mesh["dp"]);
        pipeline.update_by({&sgd});
        pipeline.run(
            mean_squared_error,
            make_batches(device, mesh.coordinate("dp") * count, count, per_update));
        keep(rank, *layer);
    });
}

}  // namespace

void ask_trained(Judge& judge, const LeftSchedules& made, int per_update,
                 const std::string& rule) {
    constexpr int kMostStages = 5;
    if (made.right.stages > kMostStages) return;
    TrainedStack left;
    try {
        left = train_by(made.left, per_update);
    } catch (const UsageError& error) {
        judge.ask(false, made.run.name + ": it trains a stack of layers", "",
                  error.what());
    }
    for (const auto& [parameter, expected] : train_by(made.right, per_update))
        judge.close(fmt::format("{}: {}{}", made.run.name, parameter, rule),
                    left.at(parameter), expected);
}

}  // namespace lockstep::lessons

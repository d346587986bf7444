#include "lessons/assignments/trained_stack.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "sim/cluster.hpp"
#include "src/comm/mesh.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/pipeline/pipeline.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::int64_t kStackWidth = 3;
constexpr std::int64_t kStackRows = 2;  ///< of a micro-batch
constexpr int kPipelines = 2;

/// tanh(linear(x)).
std::unique_ptr<Module> make_layer(Device& device, int number) {
    auto layer = std::make_unique<Sequential>();
    layer->add<Linear>(ParameterInit{device, DType::f64, 1, std::to_string(number)},
                       kStackWidth, kStackWidth);
    layer->add<Tanh>(device);
    return layer;
}

/// Micro-batches of other values each, (kStackRows, kStackWidth), from number `first` on.
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

TrainedStack run_on(int ranks, const Program& program) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.workers = 1;
    TrainedStack all;
    for (const RankReport& rank : sim::make_cluster(options)->run(program).ranks)
        all.insert(rank.kept.begin(), rank.kept.end());
    return all;
}

std::vector<HostTensor> values_of(Device& device, Module& module) {
    std::vector<HostTensor> values;
    for (const Parameter* parameter : module.parameters())
        values.push_back(device.download(parameter->value));
    return values;
}

void set_values(Device& device, Module& module, const std::vector<HostTensor>& values) {
    std::size_t next = 0;
    for (const Parameter* parameter : module.parameters())
        device.upload_into(parameter->value, values[next++]);
}

}  // namespace

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

TrainedStack train_alone(int stages, int micro_batches, int per_update) {
    return run_on(1, [&](Rank& rank) {
        Device& device = rank.device();
        Sequential stack;
        for (int layer = 0; layer < stages; ++layer)
            stack.add(make_layer(device, layer));
        Sgd sgd(stack.parameters(), kSgd);
        std::vector<HostTensor> newest = values_of(device, stack);
        std::vector<HostTensor> before = newest;
        for (int first = 0; first < micro_batches; first += per_update) {
            set_values(device, stack, before);
            std::vector<MicroBatch> batch;
            for (int pipeline = 0; pipeline < kPipelines; ++pipeline)
                std::ranges::move(make_batches(device, pipeline * micro_batches + first,
                                               per_update, per_update),
                                  std::back_inserter(batch));
            accumulate_gradients(device, stack, mean_squared_error, batch);
            set_values(device, stack, newest);
            sgd.step();
            before = std::exchange(newest, values_of(device, stack));
        }
        keep(rank, stack);
    });
}

}  // namespace lockstep::lessons

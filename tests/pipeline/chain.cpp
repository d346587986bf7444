#include "tests/pipeline/chain.hpp"

#include <fmt/format.h>

#include "src/comm/mesh.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"

namespace lockstep::test {

namespace {

void keep(Rank& rank, Module& module) {
    for (const Parameter* parameter : module.parameters()) {
        rank.keep("grad/" + parameter->name(), parameter->gradient);
        rank.keep("value/" + parameter->name(), parameter->value);
    }
}

ChainResult result_of(RunReport report) {
    ChainResult result;
    for (const RankReport& rank : report.ranks) {
        for (const auto& [name, tensor] : rank.kept)
            (name.starts_with("grad/") ? result.gradients : result.values)
                .emplace(name.substr(name.find('/') + 1), tensor);
        if (const auto losses = rank.series.find("loss"); losses != rank.series.end())
            result.losses = losses->second;
    }
    result.report = std::move(report);
    return result;
}

}  // namespace

std::unique_ptr<Module> make_chain_part(Device& device, int part) {
    auto layers = std::make_unique<Sequential>();
    layers->add<Linear>(ParameterInit{device, DType::f64, 1, std::to_string(part)},
                        kChainWidth, kChainWidth);
    layers->add<Tanh>(device);
    return layers;
}

std::vector<MicroBatch> chain_batches(Device& device, int count) {
    // What is there before a step is no activation.
    const MemoryScope scope(device, MemoryCategory::workspace);
    std::vector<MicroBatch> batches;
    for (int i = 0; i < count; ++i) {
        const Tensor x = device.empty({kChainRows, kChainWidth}, DType::f64);
        const Tensor target = device.empty({kChainRows, kChainWidth}, DType::f64);
        device.random_normal(x, RandomStream(2, "x"), 0, 1, i * x.elements());
        device.random_normal(target, RandomStream(2, "target"), 0, 1,
                             i * target.elements());
        batches.push_back({x, target, 1.0 / count});
    }
    return batches;
}

PartBoundary chain_boundary() {
    return {[](const MicroBatch& batch) { return batch.input.shape(); }, DType::f64};
}

ChainResult run_chain(int parts, int micro_batches) {
    return result_of(sim::make_cluster(1)->run([&](Rank& rank) {
        Device& device = rank.device();
        Sequential chain;
        for (int part = 0; part < parts; ++part)
            chain.add(make_chain_part(device, part));
        const Tensor loss = accumulate_gradients(device, chain, mean_squared_error,
                                                 chain_batches(device, micro_batches));
        rank.keep_value("loss", device.peek(loss).at(0));
        keep(rank, chain);
    }));
}

ChainResult run_chain(const PipelinePlan& plan, const ChainOptions& options) {
    const Schedule& schedule = plan.schedule();
    sim::ClusterOptions cluster;
    cluster.ranks = schedule.stages;
    cluster.check = options.check;
    return result_of(sim::make_cluster(cluster)->run([&](Rank& rank) {
        Device& device = rank.device();
        std::vector<std::unique_ptr<Module>> parts;
        std::vector<std::unique_ptr<Sgd>> optimizers;
        std::vector<Module*> chunks;
        std::vector<Optimizer*> updates;
        for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
            parts.push_back(make_chain_part(device, schedule.part(rank.index(), chunk)));
            chunks.push_back(parts.back().get());
            optimizers.push_back(std::make_unique<Sgd>(
                chunks.back()->parameters(), SgdOptions{options.learning_rate, 0, 0}));
            updates.push_back(optimizers.back().get());
        }
        const Mesh mesh(rank.world(), {{"pp", schedule.stages}});
        Pipeline pipeline(device, mesh["pp"], plan, chunks, chain_boundary());
        if (options.learning_rate != 0) pipeline.update_by(updates);
        const auto batches = chain_batches(device, schedule.micro_batches);
        for (int run = 0; run < options.runs; ++run) {
            const Tensor loss = pipeline.run(mean_squared_error, batches);
            if (loss) rank.keep_value("loss", device.peek(loss).at(0));
        }
        for (Module* chunk : chunks)
            keep(rank, *chunk);
    }));
}

}  // namespace lockstep::test

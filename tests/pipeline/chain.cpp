#include "tests/pipeline/chain.hpp"

#include "src/comm/mesh.hpp"
#include "src/nn/activation.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/trial/training.hpp"

namespace lockstep::test {

namespace {

void keep(Rank& rank, Module& module) {
    keep_parameters(rank, module.parameters(), "grad/", &Parameter::gradient);
    keep_parameters(rank, module.parameters(), "value/", &Parameter::value);
}

}  // namespace

std::unique_ptr<Module> make_chain_part(Device& device, int part) {
    auto layers = std::make_unique<Sequential>();
    layers->add<Linear>(ParameterInit{device, DType::f64, 1, std::to_string(part)},
                        kChainWidth, kChainWidth);
    layers->add<Tanh>(device);
    return layers;
}

std::vector<MicroBatch> chain_batches(Device& device, int count, bool uneven) {
    const auto rows = [&](int i) { return kChainRows + (uneven ? i % 3 : 0); };
    std::int64_t all = 0;
    for (int i = 0; i < count; ++i)
        all += rows(i);
    // Tensors that exist before a step must not be counted as activations.
    const MemoryScope scope(device, MemoryCategory::workspace);
    std::vector<MicroBatch> batches;
    std::int64_t first = 0;
    for (int i = 0; i < count; ++i) {
        const Tensor x = device.empty({rows(i), kChainWidth}, DType::f64);
        const Tensor target = device.empty({rows(i), kChainWidth}, DType::f64);
        device.random_normal(x, RandomStream(2, "x"), 0, 1, first);
        device.random_normal(target, RandomStream(2, "target"), 0, 1, first);
        batches.push_back(
            {x, target, static_cast<double>(rows(i)) / static_cast<double>(all)});
        first += x.elements();
    }
    return batches;
}

PartBoundary chain_boundary() {
    return {[](const MicroBatch& batch) { return batch.input.shape(); }, DType::f64};
}

Outcome run_chain(int parts, int micro_batches, bool uneven) {
    return outcome_of(*sim::make_cluster(1), [&](Rank& rank) {
        Device& device = rank.device();
        Sequential chain;
        for (int part = 0; part < parts; ++part)
            chain.add(make_chain_part(device, part));
        const Tensor loss =
            accumulate_gradients(device, chain, mean_squared_error,
                                 chain_batches(device, micro_batches, uneven));
        rank.keep_value("loss", device.peek(loss).at(0));
        keep(rank, chain);
    });
}

Outcome run_chain(const PipelinePlan& plan, const ChainOptions& options) {
    const Schedule& schedule = plan.schedule();
    const int count = schedule.micro_batches;
    sim::ClusterOptions cluster;
    cluster.ranks = schedule.stages * options.replicas;
    cluster.check = options.check;
    return outcome_of(*sim::make_cluster(cluster), [&](Rank& rank) {
        Device& device = rank.device();
        const Mesh mesh(rank.world(),
                        {{"pp", schedule.stages}, {"dp", options.replicas}});
        Communicator& line = mesh["pp"];
        std::vector<std::unique_ptr<Module>> parts;
        std::vector<std::unique_ptr<Sgd>> optimizers;
        std::vector<Module*> chunks;
        std::vector<Optimizer*> updates;
        for (int chunk = 0; chunk < schedule.chunks; ++chunk) {
            parts.push_back(make_chain_part(device, schedule.part(line.rank(), chunk)));
            chunks.push_back(parts.back().get());
            optimizers.push_back(std::make_unique<Sgd>(
                parts.back()->parameters(), SgdOptions{options.learning_rate, 0, 0}));
            updates.push_back(optimizers.back().get());
        }
        Pipeline pipeline(device, line, plan, chunks, chain_boundary());
        if (options.tie) pipeline.tie_copies();
        if (options.replicas > 1) pipeline.reduce_over(mesh["dp"]);
        if (options.learning_rate != 0) pipeline.update_by(updates);
        pipeline.estimate_by(options.decay);
        if (options.offload) pipeline.offload_activations(/*least_bytes=*/0);
        const auto all = chain_batches(device, count * options.replicas, options.uneven);
        const auto each = static_cast<std::size_t>(count);
        const auto replica = static_cast<std::size_t>(mesh.coordinate("dp"));
        const auto mine = std::span(all).subspan(replica * each, each);
        for (int run = 0; run < options.runs; ++run) {
            const Tensor loss = pipeline.run(mean_squared_error, mine);
            if (loss) rank.keep_value("loss", device.peek(loss).at(0));
        }
        for (Module* chunk : chunks)
            keep(rank, *chunk);
    });
}

}  // namespace lockstep::test

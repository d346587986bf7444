#include "tests/parallel/twin.hpp"

#include "src/parallel/placement.hpp"

namespace lockstep::test {

namespace {

ParameterInit init_of(Rank& rank, const TaskInputs& in) {
    return {rank.device(), in.tensor("dy").dtype(), 7, ""};
}

}  // namespace

MakeRegions regions(Regions kind) {
    return
        [kind](Device& device, Communicator& group) -> std::unique_ptr<TensorParallel> {
            if (kind == Regions::sequence_parallel)
                return std::make_unique<SequenceParallel>(device, group);
            return std::make_unique<TensorParallel>(device, group);
        };
}

Task pass_alone(const MakeAlone& make) {
    return [=](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        pass_through(*make(init_of(rank, in)), in, out);
    };
}

Task pass_shared(const MakeRegions& make_regions, const MakeShared& make,
                 Backward backward) {
    return [=](Rank& rank, const TaskInputs& in, TaskOutputs& out) {
        const auto tp = make_regions(rank.device(), rank.world());
        const auto module = make(init_of(rank, in), *tp);
        pass_through(*module, in, out, backward);
        complete_gradients(module->parameters());
    };
}

std::unique_ptr<Cluster> classroom(int ranks, bool numbers, sim::CheckLevel check) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster("classroom");
    options.numbers = numbers;
    options.check = check;
    return sim::make_cluster(std::move(options));
}

}  // namespace lockstep::test

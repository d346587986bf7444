#include "tests/sim/worlds.hpp"

#include "tests/catch.hpp"

namespace lockstep::test {

std::vector<World> all_worlds() {
    std::vector<World> worlds{{sim::ExecutorKind::fibers, 1, std::nullopt},
                              {sim::ExecutorKind::fibers, 2, std::nullopt},
                              {sim::ExecutorKind::fibers, 4, std::nullopt},
                              {sim::ExecutorKind::threads, 1, std::nullopt},
                              {sim::ExecutorKind::threads, 2, 99}};
    for (std::uint64_t seed = 0; seed < 10; ++seed)
        worlds.push_back(
            {sim::ExecutorKind::fibers, 1 + static_cast<int>(seed % 2), seed});
    return worlds;
}

sim::ClusterOptions options_of(const World& world, int ranks, const std::string& spec) {
    sim::ClusterOptions options;
    options.ranks = ranks;
    options.spec = load_cluster(spec);
    options.executor = world.executor;
    options.workers = world.workers;
    options.schedule_seed = world.seed;
    options.check = world.check;
    return options;
}

std::unique_ptr<Cluster> make_cluster_in(const World& world, int ranks,
                                         const std::string& spec, bool trace) {
    sim::ClusterOptions options = options_of(world, ranks, spec);
    options.trace = trace;
    return sim::make_cluster(std::move(options));
}

Diagnosis fault_of(int ranks, const Program& program) {
    std::optional<Diagnosis> first;
    for (const World& world : all_worlds()) {
        if (ranks > 16 && world.executor == sim::ExecutorKind::threads) continue;
        try {
            make_cluster_in(world, ranks)->run(program);
            FAIL("the program was found correct");
        } catch (const FaultError& error) {
            if (!first) first = error.diagnosis();
            CHECK(error.diagnosis().text() == first->text());
        }
    }
    return *first;
}

}  // namespace lockstep::test
